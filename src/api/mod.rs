//! The SQL surface, one file a verb. Each function reads its arguments, calls the broker, and renders the answer.

pub mod ack;
pub mod arguments;
pub mod changes;
pub mod dlq;
pub mod dlq_move;
pub mod due;
pub mod group;
pub mod lease;
pub mod maintain;
pub mod messages;
pub mod pause;
pub mod pop;
pub mod push;
pub mod queue;
pub mod replay;
pub mod trace;
pub mod transaction;
pub mod verify;
pub mod wait;
