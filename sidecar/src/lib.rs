//! HTTP for the broker in PostgreSQL: the wire of Queen MQ 1.6 in front of the extension `queen`.
//!
//! Each handler is: parse, one SQL function, render. What is decided about messages is decided in the database; what
//! is here concerns the door alone: who may enter ([`auth`]), how requests that come together share a commit
//! ([`coalesce`]), and how consumers wait without holding a connection or polling ([`polls`]).

#![deny(missing_docs)]
// A failed unwrap is how a test fails.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod answers;
pub mod auth;
pub mod body;
pub mod budget;
pub mod cli;
pub mod coalesce;
pub mod config;
pub mod database;
pub mod dead_letters;
pub mod depths;
pub mod error;
pub mod maintenance;
pub mod metrics;
pub mod operate;
pub mod peer;
pub mod polls;
pub mod replays;
pub mod routes;
pub mod server;
pub mod state;
pub mod tenant;
pub mod times;
pub mod uploads;
