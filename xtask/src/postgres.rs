//! The server to build for, as its `pg_config` tells it.

use eyre::{Context, OptionExt, Result, ensure};
use std::path::PathBuf;
use std::process::Command;

pub struct Postgres {
    /// The program that was asked.
    pub config: String,
    /// `15` of `PostgreSQL 15.20 (Debian …)`.
    pub major: String,
    /// Where the server looks for libraries.
    pub libdir: PathBuf,
    /// Where the server looks for control files and scripts.
    pub extensiondir: PathBuf,
}

impl Postgres {
    /// Asks `config`, else `PGRX_PG_CONFIG_PATH`'s program, else the `pg_config` in the path.
    pub fn find(config: Option<&str>) -> Result<Self> {
        let config = match config {
            Some(config) => config.to_owned(),
            None => std::env::var("PGRX_PG_CONFIG_PATH").unwrap_or("pg_config".to_owned()),
        };
        let version = ask(&config, "--version")?;
        Ok(Self {
            major: major(&version).ok_or_eyre(format!("no version in `{config} --version`: {version}"))?.to_owned(),
            libdir: ask(&config, "--pkglibdir")?.into(),
            extensiondir: PathBuf::from(ask(&config, "--sharedir")?).join("extension"),
            config,
        })
    }
}

fn ask(config: &str, what: &str) -> Result<String> {
    let output = Command::new(config).arg(what).output().wrap_err_with(|| format!("cannot run {config}"))?;
    ensure!(output.status.success(), "`{config} {what}` failed");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn major(version: &str) -> Option<&str> {
    version.split(|c: char| !c.is_ascii_digit()).find(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    #[test]
    fn major_of_releases_and_betas() {
        assert_eq!(super::major("PostgreSQL 15.20 (Debian 15.20-0)"), Some("15"));
        assert_eq!(super::major("PostgreSQL 19beta1"), Some("19"));
        assert_eq!(super::major("PostgreSQL"), None);
    }
}
