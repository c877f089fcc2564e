//! A throw-away cluster for the tests.
