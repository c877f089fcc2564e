//! Encryption at rest: what is sealed on the way in and opened on the way out.

use crate::error::{ErrorKind, Result, error};
use crate::guc;
use queen_core::envelope::{KeyRing, looks_sealed};
use queen_core::options::QueueOptions;
use queen_core::payload::check_json;
use std::borrow::Cow;

/// The keys for pushes to a queue: None when it is not encrypted.
///
/// # Errors
/// An encrypted queue without a usable key refuses pushes; it never stores plaintext instead.
pub fn sealer(queue: &str, options: &QueueOptions) -> Result<Option<KeyRing>> {
    if !options.encryption_enabled {
        return Ok(None);
    }
    let ring = guc::key_ring()?;
    if ring.is_empty() {
        return Err(error(
            ErrorKind::EncryptionUnavailable,
            format!("queue \"{}\" is encrypted and no key is configured", queen_core::names::cut(queue, 64)),
        )
        .with_hint("Set queen.encryption_keys or queen.encryption_key_file, or configure encryptionEnabled false."));
    }
    Ok(Some(ring))
}

/// Opens payloads for readers.
pub struct Opener(Option<KeyRing>);

impl Opener {
    /// With the configured keys; a setting that cannot be read opens nothing (and pushes say so).
    pub fn new() -> Opener {
        Opener(guc::key_ring().ok().filter(|ring| !ring.is_empty()))
    }

    /// The payload as its producer pushed it, and whether what is returned is still sealed.
    pub fn open<'a>(&self, payload: &'a [u8], sealed: bool) -> (Cow<'a, str>, bool) {
        let text = std::str::from_utf8(payload).unwrap_or_default();
        if let Some(ring) = &self.0
            && (sealed || looks_sealed(text))
            && let Some(plain) = ring.open(text)
            && let Ok(plain) = String::from_utf8(plain)
            // Sealed elsewhere it could be anything, and a reader that puts it into JSON counts on JSON.
            && (sealed || check_json(&plain, usize::MAX).is_ok())
        {
            return (Cow::Owned(plain), false);
        }
        (Cow::Borrowed(text), sealed)
    }
}
