//! The settings, one entry each: default, unit, and why it exists.

use crate::error::{ErrorKind, Result, error};
use crate::pg::settings::{Number, Switch, Text, Who, is_set_already, number, reserve_prefix, switch, text};
use pgrx::pg_sys;
use queen_core::envelope::KeyRing;
use queen_core::segment::EncodeOptions;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static TENANT: Text = Text::new();
static ACTOR: Text = Text::new();
static WORKER_DATABASES: Text = Text::new();
static ENCRYPTION_KEYS: Text = Text::new();
static ENCRYPTION_KEY_FILE: Text = Text::new();
static DEFAULT_SUBSCRIPTION_MODE: Text = Text::new();
static ZSTD_LEVEL: Number = Number::new(1);
static MIN_COMPRESS_BYTES: Number = Number::new(512);
static MAX_PAYLOAD_BYTES: Number = Number::new(64 << 20);
static PROCESSED_MESSAGE_DAYS: Number = Number::new(30);
static EARLY_LOCK_RELEASE: Switch = Switch::new(true);

/// The tenant of a session that sets none.
pub const DEFAULT_TENANT: u128 = 1;

/// The session had a value for `queen.tenant` before the library was loaded.
static TENANT_WAS_SET: AtomicBool = AtomicBool::new(false);
/// The same of `queen.actor`.
static ACTOR_WAS_SET: AtomicBool = AtomicBool::new(false);

/// Declares every setting; called once, when the library is loaded.
pub fn declare() {
    TENANT_WAS_SET.store(is_set_already(c"queen.tenant"), Relaxed);
    ACTOR_WAS_SET.store(is_set_already(c"queen.actor"), Relaxed);
    text(
        &TENANT,
        c"queen.tenant",
        c"Tenant in which queue names are resolved, a UUID.",
        c"Superusers set it, for a role with ALTER ROLE ... SET, so that a role can be pinned to one tenant.",
        c"00000000-0000-0000-0000-000000000001",
        Who::Superuser,
    );
    text(
        &ACTOR,
        c"queen.actor",
        c"Who acts on dead letters, for the audit; empty: the login.",
        c"For a server that authenticates people itself: who may set it (queen_sidecar may) speaks for others.",
        c"",
        Who::Superuser,
    );
    text(
        &WORKER_DATABASES,
        c"queen.worker_databases",
        c"Databases in which a background worker runs replay plans, comma-separated.",
        c"Read when the server starts, if the library is preloaded. Empty: none; call queen.run_replays instead.",
        c"",
        Who::Server,
    );
    text(
        &ENCRYPTION_KEYS,
        c"queen.encryption_keys",
        c"Keys of encrypted queues: id:64 hex digits, comma-separated.",
        c"The first encrypts, all decrypt, so that keys can be rotated. Never shown.",
        c"",
        Who::Secret,
    );
    text(
        &ENCRYPTION_KEY_FILE,
        c"queen.encryption_key_file",
        c"File with the keys of encrypted queues, as in queen.encryption_keys.",
        c"Read by the server when queen.encryption_keys is empty. Keeps keys out of configuration files and logs.",
        c"",
        Who::Secret,
    );
    text(
        &DEFAULT_SUBSCRIPTION_MODE,
        c"queen.default_subscription_mode",
        c"Where a new consumer group starts when its first pop names no mode: new or all.",
        c"new: after what is already queued.",
        c"new",
        Who::Everybody,
    );
    number(
        &ZSTD_LEVEL,
        c"queen.zstd_level",
        c"Compression level of segments.",
        c"Higher is smaller and slower.",
        (1, 19),
        Who::Everybody,
        0,
    );
    number(
        &MIN_COMPRESS_BYTES,
        c"queen.min_compress_bytes",
        c"Segments smaller than this are stored uncompressed.",
        c"Compressing a few hundred bytes costs more than it saves.",
        (0, 1_000_000_000),
        Who::Everybody,
        pg_sys::GUC_UNIT_BYTE,
    );
    number(
        &MAX_PAYLOAD_BYTES,
        c"queen.max_payload_bytes",
        c"Largest payload that a push accepts.",
        c"A limit against accidents; the hard limit is near 1 GB.",
        (1, 900_000_000),
        Who::Superuser,
        pg_sys::GUC_UNIT_BYTE,
    );
    number(
        &PROCESSED_MESSAGE_DAYS,
        c"queen.processed_message_days",
        c"How long process_once remembers a message, in days.",
        c"maintain() forgets older ones: longer than any message may come again.",
        (1, 36_500),
        Who::Superuser,
        0,
    );
    switch(&EARLY_LOCK_RELEASE, c"queen.early_lock_release",
        c"Lets the next push to a partition go on while this one waits for the disk.",
        c"Only for transactions that did nothing but push; such a commit is still durable before the client is answered.",
        Who::Everybody);
    reserve_prefix();
}

/// The session's tenant.
///
/// # Errors
/// `PermissionDenied`: the session asked for a tenant that it has no right to choose. When the library is not preloaded,
/// the server finds that out only when it loads it, after the tenant of the role has been replaced: there is no telling
/// which one was meant.
pub fn tenant() -> Result<u128> {
    if TENANT_WAS_SET.load(Relaxed) {
        if refused("queen.tenant") {
            return Err(error(ErrorKind::PermissionDenied, "queen.tenant was set by a session that may not set it")
                .with_hint("Connect without the setting."));
        }
        TENANT_WAS_SET.store(false, Relaxed);
    }
    let Some(text) = TENANT.get() else { return Ok(DEFAULT_TENANT) };
    uuid::Uuid::parse_str(text)
        .map(|u| u.as_u128())
        .map_err(|_| error(ErrorKind::InvalidId, "queen.tenant is not a UUID"))
}

/// Who acts: the setting, else the login.
///
/// # Errors
/// `PermissionDenied`: as for [`tenant`].
pub fn actor() -> Result<String> {
    if ACTOR_WAS_SET.load(Relaxed) {
        if refused("queen.actor") {
            return Err(error(ErrorKind::PermissionDenied, "queen.actor was set by a session that may not set it")
                .with_hint("Connect without the setting."));
        }
        ACTOR_WAS_SET.store(false, Relaxed);
    }
    Ok(ACTOR.get().map_or_else(crate::pg::privilege::session_user, str::to_owned))
}

/// The databases with a background worker.
pub fn worker_databases() -> Vec<String> {
    let list = WORKER_DATABASES.get().unwrap_or_default();
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// How long `process_once` remembers, in days.
pub fn processed_message_days() -> i32 {
    PROCESSED_MESSAGE_DAYS.get().max(1)
}

/// Whether the server has dropped what was set before the library was loaded.
fn refused(name: &str) -> bool {
    let source = crate::pg::spi::read_as_owner(|client| {
        client
            .select("SELECT source FROM pg_catalog.pg_settings WHERE name = $1", Some(1), &[name.into()])?
            .first()
            .get_one::<String>()
    });
    !matches!(source, Ok(Some(source)) if source != "default")
}

/// How segments are compressed.
pub fn encode_options() -> EncodeOptions {
    EncodeOptions { level: ZSTD_LEVEL.get(), min_compress: MIN_COMPRESS_BYTES.get().max(0) as usize }
}

/// Largest accepted payload, in bytes.
pub fn max_payload_bytes() -> usize {
    MAX_PAYLOAD_BYTES.get().max(1) as usize
}

pub fn early_lock_release() -> bool {
    EARLY_LOCK_RELEASE.get()
}

/// `new` or `all`, as configured.
pub fn default_subscription_mode() -> &'static str {
    DEFAULT_SUBSCRIPTION_MODE.get().unwrap_or("new")
}

/// The configured keys; empty when none are.
pub fn key_ring() -> Result<KeyRing> {
    if let Some(keys) = ENCRYPTION_KEYS.get() {
        return KeyRing::parse(keys).map_err(Into::into);
    }
    let Some(file) = ENCRYPTION_KEY_FILE.get() else { return KeyRing::parse("").map_err(Into::into) };
    let text = std::fs::read_to_string(file)
        .map_err(|e| error(ErrorKind::InvalidKey, format!("queen.encryption_key_file cannot be read: {}", e.kind())))?;
    KeyRing::parse(text.trim()).map_err(Into::into)
}
