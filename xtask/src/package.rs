//! The release build as an archive, and for Debian as packages too: the extension of a PostgreSQL, and the HTTP server.

use crate::{NAME, VERSION, build, install, postgres::Postgres};
use eyre::{Context, Result, ensure};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Stripped programs, control file, scripts and documents, ready to be laid out.
struct Parts {
    library: Vec<u8>,
    server: Vec<u8>,
    unit: Vec<u8>,
    extension: Vec<(String, Vec<u8>)>,
    documents: Vec<(String, Vec<u8>)>,
}

pub fn run(root: &Path, postgres: &Postgres) -> Result<()> {
    let out = build::target(root)?.join("package");
    let stage = out.join("stage");
    let _ = fs::remove_dir_all(&stage);
    fs::create_dir_all(&stage)?;

    let parts = Parts {
        library: stripped(&build::library(root, postgres, "release")?, &stage)?,
        server: stripped(&build::server(root)?, &stage)?,
        unit: fs::read(root.join("scripts/queen.service"))?,
        extension: install::extension_files(root)?,
        documents: documents(root)?,
    };
    let epoch = epoch(root)?;
    println!("{}", archive(&parts, root, postgres, &stage, &out, &epoch)?.display());
    // A package for PostgreSQL where Debian has it; a server elsewhere gets the archive only.
    if exists("dpkg-deb") {
        if postgres.libdir.starts_with("/usr/lib/postgresql") {
            println!("{}", debian_extension(&parts, postgres, &stage, &out, &epoch)?.display());
        }
        println!("{}", debian_server(&parts, &stage, &out, &epoch)?.display());
    }
    fs::remove_dir_all(&stage)?;
    Ok(())
}

/// Examples for those who watch the server.
const MONITORING: [(&str, &[u8]); 2] = [
    ("alerts.yml", include_bytes!("../../monitoring/alerts.yml")),
    ("grafana-dashboard.json", include_bytes!("../../monitoring/grafana-dashboard.json")),
];

/// `queen-VERSION-pgMAJOR-ARCH.tar.gz`: one folder with an `install.sh` for any PostgreSQL of that
/// major version.
fn archive(parts: &Parts, root: &Path, postgres: &Postgres, stage: &Path, out: &Path, epoch: &str) -> Result<PathBuf> {
    let name = format!("{NAME}-{VERSION}-pg{}-{}", postgres.major, std::env::consts::ARCH);
    let top = stage.join(&name);
    put(&top.join("lib").join(format!("{NAME}.so")), &parts.library)?;
    for (file, bytes) in &parts.extension {
        put(&top.join("extension").join(file), bytes)?;
    }
    for (file, bytes) in &parts.documents {
        put(&top.join(file), bytes)?;
    }
    program(&top.join("bin").join(NAME), &parts.server)?;
    put(&top.join("bin/queen.service"), &parts.unit)?;
    for (file, bytes) in MONITORING {
        put(&top.join("monitoring").join(file), bytes)?;
    }
    let script = fs::read_to_string(root.join("scripts/install-package.sh"))?.replace("@MAJOR@", &postgres.major);
    program(&top.join("install.sh"), script.as_bytes())?;

    let path = out.join(format!("{name}.tar.gz"));
    call(
        Command::new("tar")
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
            .arg(format!("--mtime=@{epoch}"))
            .args(["--use-compress-program=gzip -9n", "-cf"])
            .args([path.as_os_str(), OsStr::new("-C"), stage.as_os_str()])
            .arg(&name),
    )?;
    Ok(path)
}

/// `postgresql-MAJOR-queen_VERSION_ARCH.deb`.
fn debian_extension(parts: &Parts, postgres: &Postgres, stage: &Path, out: &Path, epoch: &str) -> Result<PathBuf> {
    let package = format!("postgresql-{}-{NAME}", postgres.major);
    let top = stage.join(&package);
    let inside = |folder: &Path| top.join(folder.strip_prefix("/").unwrap_or(folder));
    put(&inside(&postgres.libdir).join(format!("{NAME}.so")), &parts.library)?;
    for (file, bytes) in &parts.extension {
        put(&inside(&postgres.extensiondir).join(file), bytes)?;
    }
    let major = &postgres.major;
    let depends = format!("postgresql-{major}, ");
    let description = format!(
        "partitioned, replayable message broker inside PostgreSQL {major}
 Pushes are part of the business transaction, acknowledgements of the
 consumer's; consumer groups read each partition in order, and what fails for
 good lands in a dead-letter queue that is made to be operated.
 .
 Add queen to shared_preload_libraries, restart the server, and run
 CREATE EXTENSION queen."
    );
    debian(parts, &top, &package, &depends, &description, out, epoch)
}

/// `queen-http_VERSION_ARCH.deb`: the same for every PostgreSQL. It starts nothing.
fn debian_server(parts: &Parts, stage: &Path, out: &Path, epoch: &str) -> Result<PathBuf> {
    let package = format!("{NAME}-http");
    let top = stage.join(&package);
    program(&top.join("usr/bin").join(NAME), &parts.server)?;
    let examples = top.join("usr/share/doc").join(&package).join("examples");
    put(&examples.join("queen.service"), &parts.unit)?;
    for (file, bytes) in MONITORING {
        put(&examples.join(file), bytes)?;
    }
    let description = "HTTP server for the message broker queen
 Speaks the wire of Queen MQ 1.6 in front of a PostgreSQL that has the
 extension, and has commands for its dead letters. Examples of a systemd
 unit, of alerts and of a dashboard are among the documents.";
    debian(parts, &top, &package, "libgcc-s1, ", description, out, epoch)
}

/// Packs what lies below `top`, with the documents.
fn debian(
    parts: &Parts,
    top: &Path,
    package: &str,
    depends: &str,
    description: &str,
    out: &Path,
    epoch: &str,
) -> Result<PathBuf> {
    let arch = output(Command::new("dpkg").arg("--print-architecture"))?;
    let doc = top.join("usr/share/doc").join(package);
    for (file, bytes) in &parts.documents {
        let file = if file == "LICENSE" { "copyright" } else { file };
        put(&doc.join(file), bytes)?;
    }
    let size = output(Command::new("du").args(["-sk", "--apparent-size"]).arg(top))?;
    let size = size.split_whitespace().next().unwrap_or_default();
    let control = format!(
        "Package: {package}
Version: {VERSION}
Section: database
Priority: optional
Architecture: {arch}
Depends: {depends}libc6{libc}
Installed-Size: {size}
Maintainer: the queen developers <queen@localhost>
Description: {description}
",
        libc = libc()
    );
    put(&top.join("DEBIAN/control"), control.as_bytes())?;

    let path = out.join(format!("{package}_{VERSION}_{arch}.deb"));
    call(
        Command::new("dpkg-deb")
            .env("SOURCE_DATE_EPOCH", epoch)
            .args(["--root-owner-group", "-Zxz", "--build"])
            .args([top, &path]),
    )?;
    Ok(path)
}

fn documents(root: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    ["README.md", "CHANGELOG.md", "LICENSE"]
        .into_iter()
        .filter(|name| root.join(name).is_file())
        .map(|name| Ok((name.to_owned(), fs::read(root.join(name))?)))
        .collect()
}

/// The one time that all files get, so that the same commit gives the same archive:
/// `SOURCE_DATE_EPOCH`, else the commit's.
fn epoch(root: &Path) -> Result<String> {
    if let Ok(epoch) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(epoch);
    }
    let git = Command::new("git").current_dir(root).args(["log", "-1", "--format=%ct"]).output();
    match git {
        Ok(git) if git.status.success() => Ok(String::from_utf8(git.stdout)?.trim().to_owned()),
        _ => output(Command::new("date").arg("+%s")),
    }
}

/// The library may use any symbol of the C library that it was linked with.
fn libc() -> String {
    output(Command::new("getconf").arg("GNU_LIBC_VERSION"))
        .ok()
        .and_then(|v| v.strip_prefix("glibc ").map(|v| format!(" (>= {v})")))
        .unwrap_or_default()
}

fn exists(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// Without what only a debugger wants.
fn stripped(binary: &Path, stage: &Path) -> Result<Vec<u8>> {
    let to = stage.join("stripped");
    call(Command::new("strip").arg("--strip-unneeded").arg("-o").args([&to, binary]))?;
    Ok(fs::read(&to)?)
}

fn program(path: &Path, bytes: &[u8]) -> Result<()> {
    put(path, bytes)?;
    call(Command::new("chmod").arg("755").arg(path))
}

fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, bytes).wrap_err_with(|| format!("cannot write {}", path.display()))
}

fn call(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().wrap_err_with(|| format!("cannot run {program}"))?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
