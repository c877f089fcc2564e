//! The shared library, and the HTTP server.

use crate::{NAME, postgres::Postgres};
use eyre::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the library for `postgres` and answers where it is.
pub fn library(root: &Path, postgres: &Postgres, profile: &str) -> Result<PathBuf> {
    let target = target(root)?;
    let cargo = std::env::var("CARGO").unwrap_or("cargo".to_owned());
    // `-p`, and features named: other packages' features must not touch the extension's build.
    let status = Command::new(cargo)
        .current_dir(root)
        .env("PGRX_PG_CONFIG_PATH", &postgres.config)
        .env("CARGO_TARGET_DIR", &target)
        .args(["build", "--lib", "-p", NAME, "--no-default-features"])
        .arg(format!("--features=pg{}", postgres.major))
        .args(["--profile", profile])
        .status()
        .wrap_err("cannot run cargo")?;
    ensure!(status.success(), "the build for PostgreSQL {} failed", postgres.major);
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(target.join(folder).join(format!("lib{NAME}.so")))
}

/// Builds the HTTP server, and answers where it is.
pub fn server(root: &Path) -> Result<PathBuf> {
    let target = target(root)?;
    let cargo = std::env::var("CARGO").unwrap_or("cargo".to_owned());
    let status = Command::new(cargo)
        .current_dir(root)
        .env("CARGO_TARGET_DIR", &target)
        .args(["build", "--release", "-p", "queen-sidecar"])
        .status()
        .wrap_err("cannot run cargo")?;
    ensure!(status.success(), "the build of the HTTP server failed");
    Ok(target.join("release").join(NAME))
}

/// Cargo's target folder, as an absolute path.
pub fn target(root: &Path) -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    Ok(std::path::absolute(target)?)
}
