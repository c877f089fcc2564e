//! Arguments and results of a SQL-visible function.
#![allow(unsafe_code)]

use super::value::{Value, bytes_of, uuid_of};
use crate::error::{ErrorKind, Result, error};
use pgrx::pg_sys::{self, Datum};
use std::ffi::CStr;

/// One call: its arguments by position (from 0), and where results go.
pub struct Call {
    fcinfo: pg_sys::FunctionCallInfo,
}

impl Call {
    pub(super) fn new(fcinfo: pg_sys::FunctionCallInfo) -> Call {
        Call { fcinfo }
    }

    /// The argument, or None when it is NULL.
    pub fn datum(&self, n: usize) -> Option<Datum> {
        // SAFETY: the server passes nargs arguments; positions are those of the SQL declaration.
        unsafe {
            let args = (*self.fcinfo).args.as_slice((*self.fcinfo).nargs as usize);
            let arg = args.get(n)?;
            (!arg.isnull).then_some(arg.value)
        }
    }

    pub fn bool(&self, n: usize) -> Option<bool> {
        self.datum(n).map(|d| d.value() as u8 != 0)
    }
    pub fn int4(&self, n: usize) -> Option<i32> {
        self.datum(n).map(|d| d.value() as i32)
    }
    pub fn int8(&self, n: usize) -> Option<i64> {
        self.datum(n).map(|d| d.value() as i64)
    }
    pub fn uuid(&self, n: usize) -> Option<u128> {
        // SAFETY: the declaration says uuid.
        self.datum(n).map(|d| unsafe { uuid_of(d) })
    }
    pub fn bytes(&self, n: usize) -> Option<&[u8]> {
        // SAFETY: the declaration says bytea; arguments live as long as the call.
        self.datum(n).map(|d| unsafe { bytes_of(d) })
    }

    /// The point in time that an interval argument lies before `now`; None when it is NULL.
    pub fn before(&self, n: usize, now: i64) -> Option<i64> {
        let arguments = [Some(Value::Time(now).datum()?), Some(self.datum(n)?)];
        // SAFETY: the declaration says interval; raises where the result is out of range.
        unsafe { pgrx::direct_function_call_as_datum(pg_sys::timestamptz_mi_interval, &arguments) }
            .map(|d| d.value() as i64)
    }

    /// A text or json argument.
    pub fn text(&self, n: usize) -> Result<Option<&str>> {
        let Some(datum) = self.datum(n) else { return Ok(None) };
        // SAFETY: the declaration says text or json; arguments live as long as the call.
        utf8(unsafe { bytes_of(datum) }).map(Some)
    }

    /// A text or json argument that must not be NULL.
    pub fn required_text(&self, n: usize, name: &str) -> Result<&str> {
        self.text(n)?.ok_or_else(|| null_argument(name))
    }

    /// A jsonb argument as text.
    pub fn jsonb(&self, n: usize) -> Result<Option<&str>> {
        // SAFETY: the declaration says jsonb.
        self.datum(n).map(|d| unsafe { jsonb_text(d) }).transpose()
    }

    /// The elements of a one-dimensional array argument of type `text` or `jsonb`, as text.
    pub fn array(&self, n: usize, element: pg_sys::Oid) -> Result<Option<Vec<Option<&str>>>> {
        let Some(datum) = self.datum(n) else { return Ok(None) };
        // SAFETY: the declaration says an array of `element`, which is a varlena with int alignment.
        unsafe {
            let array = pg_sys::pg_detoast_datum(datum.cast_mut_ptr()).cast::<pg_sys::ArrayType>();
            if (*array).ndim > 1 {
                return Err(error(ErrorKind::InvalidArgument, "the array must have one dimension"));
            }
            let (mut items, mut nulls, mut count) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
            pg_sys::deconstruct_array(array, element, -1, false, b'i' as i8, &mut items, &mut nulls, &mut count);
            (0..count as usize)
                .map(|i| match (*nulls.add(i), element) {
                    (true, _) => Ok(None),
                    (_, pg_sys::JSONBOID) => jsonb_text(*items.add(i)).map(Some),
                    _ => utf8(bytes_of(*items.add(i))).map(Some),
                })
                .collect::<Result<Vec<_>>>()
                .map(Some)
        }
    }

    /// Whether a procedure was called outside a transaction block, so that it may commit.
    pub fn may_commit(&self) -> bool {
        // SAFETY: the context of a CALL is a CallContext node.
        unsafe {
            let context = (*self.fcinfo).context;
            !context.is_null()
                && (*context).type_ == pg_sys::NodeTag::T_CallContext
                && !(*context.cast::<pg_sys::CallContext>()).atomic
        }
    }

    pub fn null(&self) -> Datum {
        // SAFETY: fcinfo is ours for the call.
        unsafe { (*self.fcinfo).isnull = true };
        Datum::null()
    }

    pub fn value(&self, value: Value<'_>) -> Datum {
        value.datum().unwrap_or_else(|| self.null())
    }

    /// One row of the declared composite type.
    pub fn row(&self, values: &[Value<'_>]) -> Datum {
        // SAFETY: the descriptor is the declared result type's; values follow its columns.
        unsafe {
            let mut desc: pg_sys::TupleDesc = std::ptr::null_mut();
            let class = pg_sys::get_call_result_type(self.fcinfo, std::ptr::null_mut(), &mut desc);
            if class != pg_sys::TypeFuncClass::TYPEFUNC_COMPOSITE {
                pgrx::error!("the function is not declared to return a row");
            }
            let desc = pg_sys::BlessTupleDesc(desc);
            let (mut datums, mut nulls) = split(values, (*desc).natts as usize);
            let tuple = pg_sys::heap_form_tuple(desc, datums.as_mut_ptr(), nulls.as_mut_ptr());
            pg_sys::HeapTupleHeaderGetDatum((*tuple).t_data)
        }
    }

    /// Starts a result of many rows.
    pub fn rows(&self) -> Rows {
        // SAFETY: raises unless the caller accepts a materialized set.
        unsafe {
            pg_sys::InitMaterializedSRF(self.fcinfo, 0);
            let info = (*self.fcinfo).resultinfo.cast::<pg_sys::ReturnSetInfo>();
            Rows { store: (*info).setResult, desc: (*info).setDesc }
        }
    }
}

fn split(values: &[Value<'_>], width: usize) -> (Vec<Datum>, Vec<bool>) {
    assert_eq!(values.len(), width, "result and declared type differ in width");
    let mut datums = vec![Datum::null(); width];
    let mut nulls = vec![false; width];
    for (i, v) in values.iter().enumerate() {
        match v.datum() {
            Some(d) => datums[i] = d,
            None => nulls[i] = true,
        }
    }
    (datums, nulls)
}

/// A set of rows under construction.
pub struct Rows {
    store: *mut pg_sys::Tuplestorestate,
    desc: pg_sys::TupleDesc,
}

impl Rows {
    pub fn put(&mut self, values: &[Value<'_>]) {
        // SAFETY: store and descriptor belong to the running call; the store copies.
        unsafe {
            let (mut datums, mut nulls) = split(values, (*self.desc).natts as usize);
            pg_sys::tuplestore_putvalues(self.store, self.desc, datums.as_mut_ptr(), nulls.as_mut_ptr());
        }
    }

    /// What a function that returns a set must return.
    pub fn done(self) -> Result<Datum> {
        Ok(Datum::null())
    }
}

/// An argument that may not be NULL was.
pub fn null_argument(name: &str) -> crate::error::Error {
    error(ErrorKind::InvalidArgument, format!("{name} must not be NULL"))
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| {
        error(ErrorKind::InvalidArgument, "the database's encoding must be UTF8: a text is not valid UTF-8")
    })
}

/// # Safety
/// `datum` must be a jsonb.
unsafe fn jsonb_text<'a>(datum: Datum) -> Result<&'a str> {
    // SAFETY: the caller promises a jsonb; the text is allocated by the server and lives as long as the call.
    unsafe {
        let jsonb = pg_sys::pg_detoast_datum(datum.cast_mut_ptr()).cast::<pg_sys::Jsonb>();
        let size = pgrx::varlena::varsize_any_exhdr(jsonb.cast());
        let text = pg_sys::JsonbToCString(std::ptr::null_mut(), &mut (*jsonb).root, size as i32);
        utf8(CStr::from_ptr(text).to_bytes())
    }
}

/// `text` as jsonb; NULL where jsonb cannot hold it (`\u0000`, lone surrogates, numbers out of range, too deep).
pub fn jsonb(text: &str) -> Value<'static> {
    let Ok(c) = std::ffi::CString::new(text) else { return Value::Null };
    pgrx::PgTryBuilder::new(|| {
        // SAFETY: jsonb_in reads a C string and allocates its result; it has no effect that an error could leave half done.
        unsafe { pgrx::direct_function_call_as_datum(pg_sys::jsonb_in, &[Some(Datum::from(c.as_ptr()))]) }
            .map_or(Value::Null, Value::Raw)
    })
    .catch_others(|cause| match &cause {
        pgrx::pg_sys::panic::CaughtError::PostgresError(e)
            if matches!(
                e.sql_error_code(),
                pgrx::PgSqlErrorCode::ERRCODE_QUERY_CANCELED | pgrx::PgSqlErrorCode::ERRCODE_ADMIN_SHUTDOWN
            ) =>
        {
            cause.rethrow()
        }
        _ => Value::Null,
    })
    .execute()
}

/// `text` as timestamptz; None when it is none.
pub fn timestamp(text: &str) -> Option<i64> {
    let c = std::ffi::CString::new(text).ok()?;
    pgrx::PgTryBuilder::new(|| {
        // SAFETY: timestamptz_in reads a C string and has no effect that an error could leave half done.
        let arguments = [Some(Datum::from(c.as_ptr())), Some(Datum::from(0usize)), Some(Datum::from(-1i32))];
        unsafe { pgrx::direct_function_call_as_datum(pg_sys::timestamptz_in, &arguments) }.map(|d| d.value() as i64)
    })
    .catch_others(|_| None)
    .execute()
}

/// The nesting level of the running (sub)transaction, 1 for the transaction itself.
pub fn nest_level() -> i32 {
    // SAFETY: reads this backend's state.
    unsafe { pg_sys::GetCurrentTransactionNestLevel() }
}

/// A timestamp as ISO 8601 in UTC, always with six digits of a second, as the wire wants it.
pub fn iso(micros: i64) -> String {
    use pgrx::datum::{TimestampWithTimeZone, ToIsoString};
    let text = TimestampWithTimeZone::try_from(micros).ok().and_then(|t| t.to_iso_string_with_timezone("UTC").ok());
    let Some(text) = text else { return String::new() };
    let text = text.trim_end_matches("+00:00").trim_end_matches("+00");
    // PostgreSQL leaves out zeros at the end.
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    format!("{seconds}.{fraction:0<6}Z")
}
