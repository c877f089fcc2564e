//! Builds, installs and packages the extension.
//!
//! ```text
//! cargo xtask schema [--write | --check]       the install script, on stdout or in sql/full/
//! cargo xtask install [PG_CONFIG] [PROFILE]    build, and copy to where that server looks
//! cargo xtask package [PG_CONFIG]              release build as .tar.gz and .deb in target/package/
//! ```
//!
//! `PG_CONFIG` is `PGRX_PG_CONFIG_PATH`'s program if not given, `PROFILE` is `release`. `install`
//! honours `DESTDIR`.

mod build;
mod install;
mod package;
mod postgres;
mod schema;

use eyre::{Result, bail};
use postgres::Postgres;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The extension's name: of the crate, the library, the control file and the scripts.
const NAME: &str = "queen";

/// The workspace's version is the extension's.
const VERSION: &str = env!("CARGO_PKG_VERSION");

const USAGE: &str = "usage: cargo xtask schema [--write | --check]
       cargo xtask install [PG_CONFIG] [PROFILE]
       cargo xtask package [PG_CONFIG]";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = root();
    match args.as_slice() {
        ["schema"] => print!("{}", schema::assemble(&root.join("sql"))?),
        ["schema", "--write"] => schema::write(&root.join("sql"))?,
        ["schema", "--check"] => schema::check(&root.join("sql"))?,
        ["install", rest @ ..] if rest.len() <= 2 => {
            install::run(&root, &Postgres::find(rest.first().copied())?, rest.get(1).copied().unwrap_or("release"))?
        }
        ["package", rest @ ..] if rest.len() <= 1 => package::run(&root, &Postgres::find(rest.first().copied())?)?,
        _ => bail!("{USAGE}"),
    }
    Ok(())
}

/// The workspace's folder. Cargo tells it at run time: with one target folder for two checkouts, this
/// program may have been compiled in the other.
fn root() -> PathBuf {
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR").map_or(env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    xtask.parent().map_or(xtask.clone(), Path::to_path_buf)
}
