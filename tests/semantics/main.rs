//! The rules of the broker, one test each, in the words of the SQL functions.

mod support;

mod ack;
mod ack_budget;
mod ack_doors;
mod clock;
mod conflation;
mod damage;
mod dead_letter_moves;
mod dead_letters;
mod dedup;
mod discovery;
mod due;
mod encryption;
mod groups;
mod hostile;
mod hostile_arguments;
mod hostile_payloads;
mod keys;
mod lease;
mod listings;
mod look;
mod options;
mod pop;
mod push;
mod push_refused;
mod retention;
mod sidecar;
mod subscription;
mod tenancy;
mod traces;
mod transaction;
mod vectors;
mod vectors_operate;
mod visibility;
