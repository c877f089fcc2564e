//! Shared memory, when the library is loaded at server start. Everything in it is a hint or a rendezvous: the tables are
//! the truth, and all of it may be lost in a crash.
#![allow(unsafe_code)]

use super::{changes, shared_append, wakeup};
use pgrx::pg_sys;

static mut NEXT_REQUEST: pg_sys::shmem_request_hook_type = None;
static mut NEXT_STARTUP: pg_sys::shmem_startup_hook_type = None;

/// Backend slots: as many as can run SQL, and some for workers.
pub fn backends() -> usize {
    // SAFETY: a global of the server, settled before shared memory is requested.
    unsafe { pg_sys::MaxBackends as usize + 64 }
}

/// This backend's slot: its index among the server's processes.
pub fn my_slot() -> usize {
    // SAFETY: MyProc is an entry of allProcs.
    unsafe { pg_sys::MyProc.offset_from((*pg_sys::ProcGlobal).allProcs) as usize }
}

/// Wakes the backend of a slot.
pub fn set_latch(slot: usize) {
    // SAFETY: slots are indexes of allProcs; a latch may be set by anybody at any time.
    unsafe { pg_sys::SetLatch(&mut (*(*pg_sys::ProcGlobal).allProcs.add(slot)).procLatch) };
}

/// Sleeps until this backend's latch is set or the time is over; the latch is reset.
pub fn wait_latch(milliseconds: i64) {
    // SAFETY: this backend's own latch.
    unsafe {
        let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
        pg_sys::WaitLatch(pg_sys::MyLatch, events as i32, milliseconds as _, pg_sys::PG_WAIT_EXTENSION);
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
}

/// Asks for shared memory; does something only while the server starts.
pub fn register() {
    // SAFETY: hooks are chained as the server expects; called once, before any backend exists.
    unsafe {
        if !pg_sys::process_shared_preload_libraries_in_progress {
            return;
        }
        NEXT_REQUEST = pg_sys::shmem_request_hook;
        pg_sys::shmem_request_hook = Some(request);
        NEXT_STARTUP = pg_sys::shmem_startup_hook;
        pg_sys::shmem_startup_hook = Some(startup);
    }
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn request() {
    // SAFETY: the next hook, then our share.
    unsafe {
        if let Some(next) = NEXT_REQUEST {
            next();
        }
        pg_sys::RequestAddinShmemSpace(wakeup::size() + changes::size() + shared_append::size() + 384);
    }
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn startup() {
    // SAFETY: the next hook, then our areas; each module interprets its own zeroed bytes.
    unsafe {
        if let Some(next) = NEXT_STARTUP {
            next();
        }
        wakeup::attach(area(c"queen wake-ups", wakeup::size()));
        changes::attach(area(c"queen changes", changes::size()));
        shared_append::attach(area(c"queen shared appends", shared_append::size()));
    }
}

/// A named area; zeroed when it is new.
unsafe fn area(name: &std::ffi::CStr, size: usize) -> *mut u8 {
    let mut found = false;
    // SAFETY: called from the start-up hook.
    unsafe {
        let p = pg_sys::ShmemInitStruct(name.as_ptr(), size, &mut found).cast::<u8>();
        if !found {
            std::ptr::write_bytes(p, 0, size);
        }
        p
    }
}
