//! Crash, restart, dump and restore, drop and create: what was acknowledged is there.
