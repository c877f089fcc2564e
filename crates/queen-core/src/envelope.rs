//! Payload encryption at rest.
//!
//! A sealed payload is a JSON object with exactly the keys `encrypted`, `iv` and `authTag`, all standard
//! base64: ciphertext, 16 bytes of which AES-256-GCM uses the first 12 as nonce, and the 16-byte tag.
//! This is the form that Queen writes, so that its data can be read. There is no associated data.
//!
//! Nonces are random. A key should seal at most 2^32 payloads (NIST SP 800-38D); put a new one in front
//! before that.

use crate::error::{ErrorKind, into_error};
use aes_gcm::aead::rand_core::RngCore;
use aes_gcm::aead::{AeadInPlace, KeyInit, OsRng};
use aes_gcm::{Aes256Gcm, Key, Nonce, Tag};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::borrow::Cow;
use std::fmt;
use zeroize::Zeroizing;

const KEY_BYTES: usize = 32;
const IV_BYTES: usize = 16;
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;
const MAX_KEY_ID_CHARS: usize = 64;

/// A key setting that cannot be read, or a payload that cannot be sealed. Shows nothing of a key, nor of
/// a key's id: the key may have been put in its place.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// Sealing without a key.
    #[error("the payload must be encrypted and no encryption key is configured")]
    NoKey,
    /// The key setting is malformed.
    #[error(
        "encryption key {entry} is malformed: {problem}; the form is id:64 hex digits, several separated by commas"
    )]
    Key {
        /// Which entry, from 1.
        entry: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The system has no randomness, or the payload is too long for the cipher.
    #[error("the payload cannot be encrypted: {problem}")]
    Seal {
        /// Which of the two.
        problem: &'static str,
    },
}

impl EnvelopeError {
    /// Which row of the error table this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoKey | Self::Seal { .. } => ErrorKind::EncryptionUnavailable,
            Self::Key { .. } => ErrorKind::InvalidKey,
        }
    }
}

into_error!(EnvelopeError);

/// The configured keys: the first one seals, all of them open, so that a key can be rotated.
///
/// Key material is wiped from memory when the ring is dropped.
#[derive(Clone, Default)]
pub struct KeyRing {
    keys: Vec<NamedKey>,
}

#[derive(Clone)]
struct NamedKey {
    id: String,
    cipher: Aes256Gcm,
}

impl fmt::Debug for KeyRing {
    /// Tells the number of keys only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyRing({} keys)", self.keys.len())
    }
}

impl KeyRing {
    /// Reads `id:64hex[,id:64hex]`, white space around entries allowed; a blank text is a ring without
    /// keys. An id is 1 to 64 characters of `A-Za-z0-9._-` and occurs once.
    ///
    /// # Errors
    /// [`EnvelopeError::Key`], which says which entry, and never what is in it.
    pub fn parse(setting: &str) -> Result<Self, EnvelopeError> {
        let mut ring = Self::default();
        if setting.trim().is_empty() {
            return Ok(ring);
        }
        for (n, entry) in setting.split(',').enumerate() {
            let wrong = |problem| EnvelopeError::Key { entry: n + 1, problem };
            let (id, hex) = entry.trim().split_once(':').ok_or(wrong("there is no colon"))?;
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
            if id.is_empty() || id.len() > MAX_KEY_ID_CHARS || !id.bytes().all(plain) {
                return Err(wrong("its id is not 1 to 64 letters, digits, dots, hyphens"));
            }
            if ring.keys.iter().any(|key| key.id == id) {
                return Err(wrong("its id occurs twice"));
            }
            let key = key_bytes(hex).ok_or(wrong("its key is not 64 hex digits"))?;
            let cipher = Aes256Gcm::new(Key::<Aes256Gcm>::from_slice(key.as_slice()));
            ring.keys.push(NamedKey { id: id.to_owned(), cipher });
        }
        Ok(ring)
    }

    /// Whether there is no key: nothing can be sealed, and nothing opened.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Seals a payload with the first key.
    ///
    /// # Errors
    /// No key; no randomness; a payload beyond the 64 GiB of the cipher.
    pub fn seal(&self, plaintext: &[u8]) -> Result<String, EnvelopeError> {
        let key = self.keys.first().ok_or(EnvelopeError::NoKey)?;
        let mut iv = [0; IV_BYTES];
        OsRng.try_fill_bytes(&mut iv).map_err(|_| EnvelopeError::Seal { problem: "the system has no randomness" })?;
        let mut buffer = plaintext.to_vec();
        let tag = key
            .cipher
            .encrypt_in_place_detached(nonce(&iv), b"", &mut buffer)
            .map_err(|_| EnvelopeError::Seal { problem: "it is too long" })?;
        Ok(format!(
            r#"{{"encrypted":"{}","iv":"{}","authTag":"{}"}}"#,
            STANDARD.encode(&buffer),
            STANDARD.encode(iv),
            STANDARD.encode(tag)
        ))
    }

    /// Opens an envelope with whichever key fits; `None` when it is no envelope, or none fits, or it was
    /// tampered with.
    pub fn open(&self, envelope: &str) -> Option<Vec<u8>> {
        if self.keys.is_empty() {
            return None;
        }
        let sealed = Sealed::read(envelope)?;
        self.keys.iter().find_map(|key| {
            let mut buffer = sealed.ciphertext.clone();
            let tag = Tag::from_slice(&sealed.tag);
            let nonce = nonce(&sealed.iv);
            let opened = key.cipher.decrypt_in_place_detached(nonce, b"", &mut buffer, tag);
            opened.ok().map(|()| buffer)
        })
    }
}

/// Whether a text has the shape of an envelope: a JSON object with exactly the three keys, each valid
/// base64, iv and tag of the right length. A payload that was pushed in this shape looks the same.
pub fn looks_sealed(text: &str) -> bool {
    Sealed::read(text).is_some()
}

/// An envelope taken apart.
struct Sealed {
    ciphertext: Vec<u8>,
    iv: [u8; IV_BYTES],
    tag: [u8; TAG_BYTES],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire<'a> {
    #[serde(borrow)]
    encrypted: Cow<'a, str>,
    #[serde(borrow)]
    iv: Cow<'a, str>,
    #[serde(borrow, rename = "authTag")]
    auth_tag: Cow<'a, str>,
}

impl Sealed {
    fn read(text: &str) -> Option<Self> {
        // Every payload read under a key comes by here, and nearly all of them leave here or at their
        // first key. (An array would be taken for the struct's fields in order.)
        if !text.trim_start().starts_with('{') {
            return None;
        }
        let wire: Wire<'_> = serde_json::from_str(text).ok()?;
        Some(Self {
            iv: STANDARD.decode(wire.iv.as_bytes()).ok()?.try_into().ok()?,
            tag: STANDARD.decode(wire.auth_tag.as_bytes()).ok()?.try_into().ok()?,
            ciphertext: STANDARD.decode(wire.encrypted.as_bytes()).ok()?,
        })
    }
}

fn nonce(iv: &[u8; IV_BYTES]) -> &Nonce<aes_gcm::aead::consts::U12> {
    const { assert!(NONCE_BYTES <= IV_BYTES) };
    Nonce::from_slice(&iv[..NONCE_BYTES])
}

fn key_bytes(hex: &str) -> Option<Zeroizing<[u8; KEY_BYTES]>> {
    if hex.len() != KEY_BYTES * 2 {
        return None;
    }
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    for (byte, [high, low]) in key.iter_mut().zip(hex.as_bytes().as_chunks().0) {
        let digit = |c: &u8| char::from(*c).to_digit(16);
        *byte = (digit(high)? * 16 + digit(low)?) as u8;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const B: &str = "FFFEFDFCFBFAF9F8F7F6F5F4F3F2F1F0EFEEEDECEBEAE9E8E7E6E5E4E3E2E1E0";

    fn ring(setting: &str) -> KeyRing {
        KeyRing::parse(setting).unwrap()
    }

    #[test]
    fn a_sealed_payload_has_the_shape_and_opens() {
        let ring = ring(&format!("a:{A}"));
        let sealed = ring.seal(b"{\"a\":1}").unwrap();
        let value: serde_json::Value = serde_json::from_str(&sealed).unwrap();
        let keys: Vec<_> = value.as_object().unwrap().keys().collect();
        assert_eq!(keys.len(), 3);
        assert!(sealed.starts_with("{\"encrypted\":\""));
        assert!(looks_sealed(&sealed));
        assert_eq!(ring.open(&sealed).unwrap(), b"{\"a\":1}");
        assert_ne!(sealed, ring.seal(b"{\"a\":1}").unwrap());
    }

    #[test]
    fn the_first_key_seals_and_all_open() {
        let old = ring(&format!("a:{A}"));
        let new = ring(&format!(" b:{B} , a:{A} "));
        let by_old = old.seal(b"1").unwrap();
        let by_new = new.seal(b"2").unwrap();
        assert_eq!(new.open(&by_old).unwrap(), b"1");
        assert_eq!(ring(&format!("x:{B}")).open(&by_new).unwrap(), b"2");
        assert_eq!(old.open(&by_new), None);
    }

    #[test]
    fn an_envelope_of_another_writer_opens() {
        // AES-256-GCM of NIST's test case 14 key (all zero), nonce of zeros, 16 zero bytes; the four
        // bytes of the iv behind the nonce do not count.
        let ring = ring(&format!("zero:{}", "0".repeat(64)));
        let ciphertext =
            [0xce, 0xa7, 0x40, 0x3d, 0x4d, 0x60, 0x6b, 0x6e, 0x07, 0x4e, 0xc5, 0xd3, 0xba, 0xf3, 0x9d, 0x18];
        let tag = [0xd0, 0xd1, 0xc8, 0xa7, 0x99, 0x99, 0x6b, 0xf0, 0x26, 0x5b, 0x98, 0xb5, 0xd4, 0x8a, 0xb9, 0x19];
        let mut iv = [0; 16];
        iv[12..].fill(0xaa);
        let envelope = format!(
            r#" {{"iv":"{}", "authTag":"{}", "encrypted":"{}"}}"#,
            STANDARD.encode(iv),
            STANDARD.encode(tag),
            STANDARD.encode(ciphertext)
        );
        assert_eq!(ring.open(&envelope).unwrap(), [0; 16]);
    }

    #[test]
    fn no_key_seals_nothing_and_opens_nothing() {
        for setting in ["", "  "] {
            let none = ring(setting);
            assert!(none.is_empty());
            let error = none.seal(b"1").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::EncryptionUnavailable);
            assert_eq!(none.open(&ring(&format!("a:{A}")).seal(b"1").unwrap()), None);
        }
    }

    #[test]
    fn malformed_settings_are_refused_and_never_shown() {
        for setting in [
            A.to_owned(),
            format!(":{A}"),
            format!("a:{}", &A[1..]),
            format!("a:{A}0"),
            format!("a:{}g", &A[1..]),
            format!("a:{}é", &A[2..]),
            format!("a:{A},"),
            format!("a:{A},a:{B}"),
            format!("a b:{A}"),
            format!("{A}{A}:{A}"),
            format!("a:{A};b:{B}"),
            ",".to_owned(),
        ] {
            let error = KeyRing::parse(&setting).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidKey, "{setting}");
            let shown = format!("{error} {error:?}").to_lowercase();
            assert!(!shown.contains("0405") && !shown.contains("fdfc"), "{shown}");
        }
        assert_eq!(format!("{:?}", ring(&format!("a:{A}"))), "KeyRing(1 keys)");
    }

    #[test]
    fn what_only_resembles_an_envelope_is_none() {
        let good = ring(&format!("a:{A}")).seal(b"1").unwrap();
        let iv = "AAAAAAAAAAAAAAAAAAAAAA==";
        for text in [
            "",
            "null",
            "{}",
            &good.replace("\"iv\"", "\"IV\""),
            &good.replace("{\"e", "{\"x\":1,\"e"),
            &good[..good.len() - 1],
            &format!("[{good}]"),
            &format!(r#"["AA==","{iv}","{iv}"]"#),
            &format!(r#"{{"encrypted":1,"iv":"{iv}","authTag":"{iv}"}}"#),
            &format!(r#"{{"encrypted":"A","iv":"{iv}","authTag":"{iv}"}}"#),
            &format!(r#"{{"encrypted":"AA==","iv":"AA==","authTag":"{iv}"}}"#),
            &format!(r#"{{"encrypted":"AA==","iv":"{iv}","authTag":"AA=="}}"#),
        ] {
            assert!(!looks_sealed(text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_sealed_opens_to_the_same_bytes(
            plaintext in proptest::collection::vec(any::<u8>(), 0..500),
        ) {
            let ring = ring(&format!("a:{A},b:{B}"));
            let sealed = ring.seal(&plaintext).unwrap();
            prop_assert!(looks_sealed(&sealed));
            prop_assert_eq!(ring.open(&sealed), Some(plaintext));
        }

        #[test]
        fn a_changed_character_is_noticed(at in any::<prop::sample::Index>(), to in "[A-Za-z0-9+/]") {
            let ring = ring(&format!("a:{A}"));
            let sealed = ring.seal(b"{\"amount\":100}").unwrap();
            let value: serde_json::Value = serde_json::from_str(&sealed).unwrap();
            // The last four bytes of the iv are not used, so only the other fields and its front count.
            for field in ["encrypted", "iv", "authTag"] {
                let old = value[field].as_str().unwrap();
                let room = if field == "iv" { 16 } else { old.trim_end_matches('=').len() - 1 };
                let at = at.index(room);
                let mut new = old.to_owned();
                new.replace_range(at..=at, &to);
                if new != old {
                    prop_assert_eq!(ring.open(&sealed.replace(old, &new)), None);
                }
            }
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".{0,120}") {
            let _ = (looks_sealed(&text), ring(&format!("a:{A}")).open(&text), KeyRing::parse(&text));
        }
    }
}
