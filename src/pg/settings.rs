//! How the server's settings are declared and read. What each one means: [`crate::guc`].
#![allow(unsafe_code)]

use pgrx::pg_sys;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};

/// A text setting. NULL and the empty string both mean "not set".
pub struct Text(Cell<*mut c_char>);
/// A switch.
pub struct Switch(Cell<bool>);
/// A number.
pub struct Number(Cell<c_int>);

// SAFETY: a backend has one thread; the server writes these only from it.
unsafe impl Sync for Text {}
// SAFETY: as above.
unsafe impl Sync for Switch {}
// SAFETY: as above.
unsafe impl Sync for Number {}

impl Text {
    pub const fn new() -> Self {
        Text(Cell::new(std::ptr::null_mut()))
    }
    pub fn get(&self) -> Option<&str> {
        let p = self.0.get();
        if p.is_null() {
            return None;
        }
        // SAFETY: the server keeps a C string here.
        let text = unsafe { CStr::from_ptr(p) }.to_str().ok()?;
        (!text.is_empty()).then_some(text)
    }
}

impl Switch {
    pub const fn new(on: bool) -> Self {
        Switch(Cell::new(on))
    }
    pub fn get(&self) -> bool {
        self.0.get()
    }
}

impl Number {
    pub const fn new(n: c_int) -> Self {
        Number(Cell::new(n))
    }
    pub fn get(&self) -> c_int {
        self.0.get()
    }
}

/// Who may change a setting, and whether it is shown.
#[derive(Clone, Copy, PartialEq)]
pub enum Who {
    Everybody,
    Superuser,
    /// Whoever writes the server's configuration.
    Server,
    /// Superuser, and its value is never shown to anybody.
    Secret,
}

fn context(who: Who) -> (pg_sys::GucContext::Type, c_int) {
    match who {
        Who::Everybody => (pg_sys::GucContext::PGC_USERSET, 0),
        Who::Superuser => (pg_sys::GucContext::PGC_SUSET, 0),
        Who::Server => (pg_sys::GucContext::PGC_SIGHUP, 0),
        Who::Secret => (
            pg_sys::GucContext::PGC_SUSET,
            (pg_sys::GUC_SUPERUSER_ONLY | pg_sys::GUC_NOT_IN_SAMPLE | pg_sys::GUC_NO_SHOW_ALL) as c_int,
        ),
    }
}

#[pgrx::pg_guard]
extern "C-unwind" fn hidden() -> *const c_char {
    c"********".as_ptr()
}

pub fn text(
    at: &'static Text,
    name: &'static CStr,
    what: &'static CStr,
    why: &'static CStr,
    default: &'static CStr,
    who: Who,
) {
    let (context, flags) = context(who);
    let show: pg_sys::GucShowHook = if who == Who::Secret { Some(hidden) } else { None };
    // SAFETY: the variable lives for ever; the server owns its value.
    unsafe {
        pg_sys::DefineCustomStringVariable(
            name.as_ptr(),
            what.as_ptr(),
            why.as_ptr(),
            at.0.as_ptr(),
            default.as_ptr(),
            context,
            flags,
            None,
            None,
            show,
        );
    }
}

pub fn switch(at: &'static Switch, name: &'static CStr, what: &'static CStr, why: &'static CStr, who: Who) {
    let (context, flags) = context(who);
    // SAFETY: as for text.
    unsafe {
        pg_sys::DefineCustomBoolVariable(
            name.as_ptr(),
            what.as_ptr(),
            why.as_ptr(),
            at.0.as_ptr(),
            at.get(),
            context,
            flags,
            None,
            None,
            None,
        );
    }
}

/// `unit`: 0 or one of the server's GUC_UNIT flags.
pub fn number(
    at: &'static Number,
    name: &'static CStr,
    what: &'static CStr,
    why: &'static CStr,
    range: (c_int, c_int),
    who: Who,
    unit: u32,
) {
    let (context, flags) = context(who);
    // SAFETY: as for text.
    unsafe {
        pg_sys::DefineCustomIntVariable(
            name.as_ptr(),
            what.as_ptr(),
            why.as_ptr(),
            at.0.as_ptr(),
            at.get(),
            range.0,
            range.1,
            context,
            flags | unit as c_int,
            None,
            None,
            None,
        );
    }
}

/// Unknown `queen.*` settings are refused from here on.
pub fn reserve_prefix() {
    // SAFETY: a constant string.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"queen".as_ptr()) }
}

/// Whether somebody has set `name` before the library was loaded, with or without the right to.
pub fn is_set_already(name: &CStr) -> bool {
    // SAFETY: a look-up by name; missing is not an error.
    unsafe {
        !pg_sys::process_shared_preload_libraries_in_progress
            && !pg_sys::GetConfigOption(name.as_ptr(), true, false).is_null()
    }
}
