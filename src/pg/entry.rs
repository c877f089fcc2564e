//! Every function that SQL can see, and the way in and out of it.
#![allow(unsafe_code)]

use super::call::Call;
use crate::error::{Error, Result};
use pgrx::pg_sys::{self, Datum};
use std::ffi::{CStr, CString, c_char, c_int};

/// Declares the C symbol and the version record of one SQL function: `symbol, record => what it does, body`.
macro_rules! sql_functions {
    ($($symbol:ident, $record:ident => $does:ident $body:path;)*) => {$(
        #[doc(hidden)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $record() -> &'static pg_sys::Pg_finfo_record {
            const V1: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };
            &V1
        }
        #[doc(hidden)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $symbol(fcinfo: pg_sys::FunctionCallInfo) -> Datum {
            run(fcinfo, $does, $body)
        }
    )*};
}

use crate::api;

const READS: bool = false;
const WRITES: bool = true;

sql_functions! {
    queen_push, pg_finfo_queen_push => WRITES api::push::push;
    queen_push_many, pg_finfo_queen_push_many => WRITES api::push::push_many;
    queen_push_batch, pg_finfo_queen_push_batch => WRITES api::push::push_batch;
    queen_push_batch_json, pg_finfo_queen_push_batch_json => WRITES api::push::push_batch_json;
    queen_flush, pg_finfo_queen_flush => WRITES api::push::flush;
    queen_pop, pg_finfo_queen_pop => WRITES api::pop::pop;
    queen_pop_json, pg_finfo_queen_pop_json => WRITES api::pop::pop_json;
    queen_pop_matching, pg_finfo_queen_pop_matching => WRITES api::pop::pop_matching;
    queen_pop_matching_json, pg_finfo_queen_pop_matching_json => WRITES api::pop::pop_matching_json;
    queen_wait, pg_finfo_queen_wait => READS api::wait::wait;
    queen_wait_changes, pg_finfo_queen_wait_changes => READS api::changes::wait_changes;
    queen_due_json, pg_finfo_queen_due_json => READS api::due::due_json;
    queen_ack, pg_finfo_queen_ack => WRITES api::ack::ack;
    queen_ack_batch, pg_finfo_queen_ack_batch => WRITES api::ack::ack_batch;
    queen_ack_batch_json, pg_finfo_queen_ack_batch_json => WRITES api::ack::ack_batch_json;
    queen_ack_many_json, pg_finfo_queen_ack_many_json => WRITES api::ack::ack_many_json;
    queen_ack_lease, pg_finfo_queen_ack_lease => WRITES api::lease::ack_lease;
    queen_nack, pg_finfo_queen_nack => WRITES api::ack::nack;
    queen_release, pg_finfo_queen_release => WRITES api::lease::release;
    queen_renew_lease, pg_finfo_queen_renew_lease => WRITES api::lease::renew_lease;
    queen_renew_lease_json, pg_finfo_queen_renew_lease_json => WRITES api::lease::renew_lease_json;
    queen_transaction, pg_finfo_queen_transaction => WRITES api::transaction::transaction;
    queen_transaction_json, pg_finfo_queen_transaction_json => WRITES api::transaction::transaction_json;
    queen_configure, pg_finfo_queen_configure => WRITES api::queue::configure;
    queen_drop_queue, pg_finfo_queen_drop_queue => WRITES api::queue::drop_queue;
    queen_dlq, pg_finfo_queen_dlq => READS api::dlq::dlq;
    queen_dlq_list, pg_finfo_queen_dlq_list => READS api::dlq::dlq_list;
    queen_dlq_list_json, pg_finfo_queen_dlq_list_json => READS api::dlq::dlq_list_json;
    queen_dlq_record_json, pg_finfo_queen_dlq_record_json => READS api::dlq::dlq_record_json;
    queen_dlq_count, pg_finfo_queen_dlq_count => READS api::dlq::dlq_count;
    queen_dlq_stats, pg_finfo_queen_dlq_stats => READS api::dlq::dlq_stats;
    queen_dlq_move_v1, pg_finfo_queen_dlq_move_v1 => WRITES api::dlq_move::dlq_move_v1;
    queen_dlq_replay_row, pg_finfo_queen_dlq_replay_row => WRITES api::dlq_move::dlq_replay_row;
    queen_dlq_payload, pg_finfo_queen_dlq_payload => READS api::dlq_move::dlq_payload;
    queen_run_replays, pg_finfo_queen_run_replays => WRITES api::replay::run_replays;
    queen_actor, pg_finfo_queen_actor => READS api::replay::actor;
    queen_same_person, pg_finfo_queen_same_person => READS api::replay::same_person;
    queen_dlq_delete, pg_finfo_queen_dlq_delete => WRITES api::dlq::dlq_delete;
    queen_dlq_delete_row, pg_finfo_queen_dlq_delete_row => WRITES api::dlq::dlq_delete_row;
    queen_dlq_purge, pg_finfo_queen_dlq_purge => WRITES api::dlq::dlq_purge;
    queen_messages, pg_finfo_queen_messages => READS api::messages::messages;
    queen_message, pg_finfo_queen_message => READS api::messages::message;
    queen_read, pg_finfo_queen_read => READS api::messages::read;
    queen_decode_segment, pg_finfo_queen_decode_segment => READS api::verify::decode_segment;
    queen_verify, pg_finfo_queen_verify => READS api::verify::verify;
    queen_seek, pg_finfo_queen_seek => WRITES api::group::seek;
    queen_drop_consumer_group, pg_finfo_queen_drop_consumer_group => WRITES api::group::drop_consumer_group;
    queen_set_subscription, pg_finfo_queen_set_subscription => WRITES api::group::set_subscription;
    queen_pause_group, pg_finfo_queen_pause_group => WRITES api::pause::pause_group;
    queen_resume_group, pg_finfo_queen_resume_group => WRITES api::pause::resume_group;
    queen_record_trace, pg_finfo_queen_record_trace => WRITES api::trace::record_trace;
    queen_traces, pg_finfo_queen_traces => READS api::trace::traces;
    queen_traces_by_name, pg_finfo_queen_traces_by_name => READS api::trace::traces_by_name;
    queen_trace_names, pg_finfo_queen_trace_names => READS api::trace::trace_names;
    queen_delete_traces, pg_finfo_queen_delete_traces => WRITES api::trace::delete_traces;
    queen_maintain, pg_finfo_queen_maintain => WRITES api::maintain::maintain;
    queen_current_tenant, pg_finfo_queen_current_tenant => READS api::queue::current_tenant;
}

fn run(fcinfo: pg_sys::FunctionCallInfo, writes: bool, body: fn(&Call) -> Result<Datum>) -> Datum {
    // SAFETY: this is the top of a C-callable function; everything with a destructor lives inside the closure.
    let outcome = unsafe {
        pg_sys::submodules::panic::pgrx_extern_c_guard(|| {
            if writes {
                // The executor's check does not see writes that go around it.
                pg_sys::PreventCommandIfReadOnly(c"a function of queen that writes".as_ptr());
                // Nor does it see a caller that claims to be safe in a parallel worker, whose pushes nobody would append.
                pg_sys::PreventCommandIfParallelMode(c"a function of queen that writes".as_ptr());
            }
            super::commit::enter();
            let outcome = body(&Call::new(fcinfo));
            super::commit::leave();
            outcome
        })
    };
    match outcome {
        Ok(datum) => datum,
        Err(error) => raise(error),
    }
}

fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// Raises `error` as a server ERROR with its own SQLSTATE. Callers must be the outermost Rust frame: the server jumps
/// out of here.
pub fn raise(error: Error) -> ! {
    // Not bound by pgrx on purpose: its own reports know the standard SQLSTATEs only, and ours has a class of its own.
    unsafe extern "C-unwind" {
        fn errstart(elevel: c_int, domain: *const c_char) -> bool;
        fn errcode(sqlerrcode: c_int) -> c_int;
        fn errmsg(fmt: *const c_char, ...) -> c_int;
        fn errhint(fmt: *const c_char, ...) -> c_int;
        fn errfinish(filename: *const c_char, lineno: c_int, funcname: *const c_char);
    }
    const S: &CStr = c"%s";
    let state = error.kind.sqlstate().bytes().rev().fold(0, |n, c| (n << 6) | (i32::from(c) - 48) & 0x3f);
    // SAFETY: the strings are copied by errmsg/errhint, and copied once more into memory of the server first so that
    // nothing of Rust's is left behind by the jump out of errfinish.
    unsafe {
        let message = pg_sys::pstrdup(c_string(&error.message).as_ptr());
        let hint = error.hint.as_deref().map(|h| pg_sys::pstrdup(c_string(h).as_ptr()));
        drop(error);
        if errstart(pg_sys::PGERROR as c_int, std::ptr::null()) {
            errcode(state);
            errmsg(S.as_ptr(), message);
            if let Some(hint) = hint {
                errhint(S.as_ptr(), hint);
            }
            errfinish(c"queen".as_ptr(), 0, std::ptr::null());
        }
    }
    unreachable!("errfinish returned from an ERROR")
}
