//! Whose queues a request is about.

use crate::error::Problem;
use axum::http::HeaderMap;
use uuid::Uuid;

/// The header a trusted proxy names the tenant in.
pub const HEADER: &str = "x-queen-tenant";

/// A tenant; names of queues are looked up within it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Tenant(pub Uuid);

impl Default for Tenant {
    fn default() -> Self {
        Tenant(Uuid::from_u128(1))
    }
}

impl Tenant {
    /// The tenant of a request. Without the header, or with an empty one, it is the default tenant.
    ///
    /// # Errors
    /// 400: the header is not a UUID in its 36-character form, or is there twice.
    pub fn of(headers: &HeaderMap) -> Result<Tenant, Problem> {
        let mut values = headers.get_all(HEADER).iter();
        let Some(value) = values.next() else { return Ok(Tenant::default()) };
        let refused = || Problem::bad_request("invalid x-queen-tenant header (must be a UUID)");
        // Of two, one may be the client's own, beside that of a proxy that only adds.
        if values.next().is_some() {
            return Err(refused());
        }
        let text = value.to_str().map_err(|_| refused())?.trim();
        match text.len() {
            0 => Ok(Tenant::default()),
            36 => Uuid::try_parse(text).map(Tenant).map_err(|_| refused()),
            _ => Err(refused()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &str) -> Result<Tenant, Problem> {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, value.parse().unwrap());
        Tenant::of(&headers)
    }

    #[test]
    fn absent_and_empty_are_the_default_tenant() {
        assert_eq!(Tenant::of(&HeaderMap::new()).ok(), Some(Tenant::default()));
        assert_eq!(of("").ok(), Some(Tenant::default()));
        assert_eq!(of("  ").ok(), Some(Tenant::default()));
    }

    #[test]
    fn a_uuid_in_any_case_and_with_spaces_around() {
        let wanted = Tenant(Uuid::from_u128(0xaaaa_0000_0000_0000_0000_0000_0000_000f));
        assert_eq!(of(" AAAA0000-0000-0000-0000-00000000000F ").ok(), Some(wanted));
    }

    #[test]
    fn two_headers_are_refused_even_if_they_agree() {
        let mut headers = HeaderMap::new();
        for _ in 0..2 {
            headers.append(HEADER, "aaaa0000-0000-0000-0000-00000000000f".parse().unwrap());
        }
        assert!(Tenant::of(&headers).is_err());
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in ["x", "aaaa000000000000000000000000000f", "{aaaa0000-0000-0000-0000-00000000000f}"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
