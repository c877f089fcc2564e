//! What a dead-letter system owes its operators, statement by statement: docs/dead-letters.md lists them all, with the
//! test of each. Here are the tests of the whole way, from the failure to the verified replay, and of what no other
//! layer tests.

mod shop;
mod statements;
mod strategy;
