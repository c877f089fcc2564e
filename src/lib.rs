//! queen: a partitioned, replayable message broker inside PostgreSQL.
//!
//! `api` is the SQL surface, `broker` what its verbs do, `rows` the tables, `pg` the only code that touches the server.
//! The rules themselves are in the crate `queen-core`.

mod api;
mod broker;
mod error;
mod guc;
mod pending;
mod pg;
mod rows;

pgrx::pg_module_magic!();

/// Runs when the library is loaded: at server start when preloaded, else with a session's first call.
#[pgrx::pg_guard]
#[allow(non_snake_case)]
pub extern "C-unwind" fn _PG_init() {
    guc::declare();
    pg::relation::register();
    pg::commit::register();
    pg::shared_memory::register();
    pg::worker::register();
}
