//! Puts the extension where a server looks for it.

use crate::{NAME, VERSION, build, postgres::Postgres, schema};
use eyre::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

pub fn run(root: &Path, postgres: &Postgres, profile: &str) -> Result<()> {
    let library = build::library(root, postgres, profile)?;
    let destdir = std::env::var_os("DESTDIR").map(PathBuf::from);
    let place = |folder: &Path| match &destdir {
        Some(destdir) => destdir.join(folder.strip_prefix("/").unwrap_or(folder)),
        None => folder.to_path_buf(),
    };
    let libdir = place(&postgres.libdir);
    let extensiondir = place(&postgres.extensiondir);
    put(&libdir, &format!("{NAME}.so"), &fs::read(library)?)?;
    for (name, bytes) in extension_files(root)? {
        put(&extensiondir, &name, &bytes)?;
    }
    println!(
        "installed {NAME} {VERSION} ({profile}) for PostgreSQL {} in {} and {}",
        postgres.major,
        libdir.display(),
        extensiondir.display()
    );
    Ok(())
}

/// What goes into the server's `extension` folder: control file, install script, upgrade steps.
pub fn extension_files(root: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let sql = root.join("sql");
    let control = format!("{NAME}.control");
    let text = fs::read_to_string(root.join(&control))?.replace("@CARGO_VERSION@", VERSION);
    let mut files = vec![(control, text.into_bytes()), (schema::file_name(), schema::assemble(&sql)?.into_bytes())];
    for step in schema::steps(&sql)? {
        let name = step.file_name().unwrap_or_default().to_string_lossy();
        files.push((name.into_owned(), fs::read(&step)?));
    }
    Ok(files)
}

/// Writes a new file and renames it into place: a running server keeps the library it has mapped,
/// and nobody ever sees half a file.
fn put(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let new = folder.join(format!(".{name}.{}", std::process::id()));
    let path = folder.join(name);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&new, bytes))
        .and_then(|()| fs::rename(&new, &path))
        .wrap_err_with(|| format!("cannot write {} (install as root, or set DESTDIR)", path.display()))
}
