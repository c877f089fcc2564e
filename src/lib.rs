//! The queen extension.
use pgrx::prelude::*;
pgrx::pg_module_magic!();
