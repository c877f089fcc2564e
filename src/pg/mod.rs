//! The only code that touches the server. `unsafe` is denied in the crate and reopened in this folder alone.

pub mod call;
pub mod changes;
pub mod clock;
pub mod commit;
pub mod creation_lock;
pub mod entry;
pub mod privilege;
pub mod procedure;
pub mod relation;
pub mod scan;
pub mod settings;
pub mod shared_append;
pub mod shared_memory;
pub mod spi;
pub mod subtransaction;
pub mod value;
pub mod wakeup;
pub mod worker;
