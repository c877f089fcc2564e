//! Who may do what.
#![allow(unsafe_code)]

use pgrx::pg_sys;
use std::ffi::CStr;

/// Whether the current user may execute a function of ours.
pub fn may_execute(function: &str) -> bool {
    let oid = crate::pg::spi::read_as_owner(|client| {
        client
            .select(
                "SELECT p.oid FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace \
                 WHERE n.nspname = 'queen' AND p.proname = $1",
                Some(1),
                &[function.into()],
            )?
            .first()
            .get_one::<pg_sys::Oid>()
    });
    let Ok(Some(oid)) = oid else { return false };
    // SAFETY: a catalog check for the current user.
    unsafe {
        // From 16 on one check serves every kind of object.
        #[cfg(feature = "pg15")]
        let result = pg_sys::pg_proc_aclcheck(oid, pg_sys::GetUserId(), pg_sys::ACL_EXECUTE);
        #[cfg(not(feature = "pg15"))]
        let result =
            pg_sys::object_aclcheck(pg_sys::ProcedureRelationId, oid, pg_sys::GetUserId(), pg_sys::ACL_EXECUTE.into());
        result == pg_sys::AclResult::ACLCHECK_OK
    }
}

/// Whether the current user may set a setting that only superusers set otherwise.
pub fn may_set(setting: &CStr) -> bool {
    // SAFETY: a catalog check for the current user; superusers pass it.
    let result = unsafe {
        pg_sys::pg_parameter_aclcheck(setting.as_ptr(), pg_sys::GetUserId(), pg_sys::AclMode::from(pg_sys::ACL_SET))
    };
    result == pg_sys::AclResult::ACLCHECK_OK
}

/// The name of the login.
pub fn session_user() -> String {
    // SAFETY: a catalog look-up that answers a string of the server's, or raises.
    unsafe {
        let name = pg_sys::GetUserNameFromId(pg_sys::GetSessionUserId(), false);
        CStr::from_ptr(name).to_string_lossy().into_owned()
    }
}
