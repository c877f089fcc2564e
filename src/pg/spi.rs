//! SQL that the broker runs for itself: with the rights of the extension's owner and a pinned search path, whatever the
//! caller's. Only for work that is not on the path of a push, pop or ack.
#![allow(unsafe_code)]

use pgrx::datum::{DatumWithOid, Uuid};
use pgrx::pg_sys;
use pgrx::spi::SpiClient;

struct AsOwner {
    user: pg_sys::Oid,
    context: i32,
    guc: i32,
}

impl AsOwner {
    fn enter() -> AsOwner {
        // SAFETY: catalog look-ups; the previous user and settings are put back on drop, and by the server on error.
        unsafe {
            let namespace = pg_sys::get_namespace_oid(c"queen".as_ptr(), false);
            let tuple = pg_sys::SearchSysCache1(pg_sys::SysCacheIdentifier::NAMESPACEOID as i32, namespace.into());
            if tuple.is_null() {
                pgrx::error!("schema \"queen\" does not exist: the extension is not installed in this database");
            }
            let owner = (*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_namespace>()).nspowner;
            pg_sys::ReleaseSysCache(tuple);
            let (mut user, mut context) = (pg_sys::Oid::INVALID, 0);
            pg_sys::GetUserIdAndSecContext(&mut user, &mut context);
            pg_sys::SetUserIdAndSecContext(owner, context | pg_sys::SECURITY_LOCAL_USERID_CHANGE as i32);
            let guc = pg_sys::NewGUCNestLevel();
            pg_sys::set_config_option(
                c"search_path".as_ptr(),
                c"pg_catalog, pg_temp".as_ptr(),
                pg_sys::GucContext::PGC_USERSET,
                pg_sys::GucSource::PGC_S_SESSION,
                pg_sys::GucAction::GUC_ACTION_SAVE,
                true,
                0,
                false,
            );
            AsOwner { user, context, guc }
        }
    }
}

impl Drop for AsOwner {
    fn drop(&mut self) {
        // While an error is on its way the server puts both back itself.
        if !std::thread::panicking() {
            // SAFETY: undoes `enter`.
            unsafe {
                pg_sys::AtEOXact_GUC(false, self.guc);
                pg_sys::SetUserIdAndSecContext(self.user, self.context);
            }
        }
    }
}

/// An id as an argument of a statement.
pub fn uuid(id: u128) -> Uuid {
    Uuid::from_bytes(id.to_be_bytes())
}

/// A point in time, server microseconds, as an argument of a statement: infinite ones too.
pub fn time(micros: i64) -> DatumWithOid<'static> {
    // SAFETY: a timestamptz is its microseconds.
    unsafe { DatumWithOid::new(micros, pg_sys::TIMESTAMPTZOID) }
}

/// Runs `work` with an SPI connection as the extension's owner. What it writes is durable when the transaction's end is
/// answered.
pub fn as_owner<T>(work: impl FnOnce(&mut SpiClient<'_>) -> T) -> T {
    super::commit::settled();
    let _owner = AsOwner::enter();
    pgrx::Spi::connect_mut(|client| work(client))
}

/// As [`as_owner`], for reading only: takes no transaction id, and works on a standby.
pub fn read_as_owner<T>(work: impl FnOnce(&SpiClient<'_>) -> T) -> T {
    let _owner = AsOwner::enter();
    pgrx::Spi::connect(|client| work(client))
}
