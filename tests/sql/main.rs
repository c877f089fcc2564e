//! Golden tests: each `*.sql` of this folder goes through psql in a fresh database, and what psql
//! prints, statements and errors included, must be what the `*.out` beside it holds.
//!
//! `UPDATE_EXPECT=1` writes the `*.out` files anew; read the diff before committing it. Uuids are
//! masked. Times, process ids and byte counts are not: do not print them.

use libtest_mimic::{Arguments, Failed, Trial};
use queen_tests::{compare, shared_cluster};
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

fn main() {
    let arguments = Arguments::from_args();
    let trials = scripts().into_iter().map(|script| {
        let name = script.file_stem().unwrap_or_default().to_string_lossy();
        Trial::test(name.into_owned(), move || run(&script))
    });
    let mut trials: Vec<Trial> = trials.collect();
    trials.push(Trial::test("errors_has_every_state", every_state));
    libtest_mimic::run(&arguments, trials).exit()
}

fn scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
    let mut scripts: Vec<PathBuf> = folder
        .read_dir()
        .expect("list tests/sql")
        .map(|entry| entry.expect("list tests/sql").path())
        .filter(|path| path.extension().is_some_and(|e| e == "sql"))
        .collect();
    scripts.sort();
    scripts
}

fn run(script: &Path) -> Result<(), Failed> {
    let cluster = shared_cluster();
    let database = cluster.fresh_database_blocking();
    // One file for both, so that errors stand below their statements.
    let mut printed = tempfile()?;
    let status = cluster
        .psql_command(&database)
        .args(["-a", "-q"])
        .stdin(File::open(script)?)
        .stdout(printed.try_clone()?)
        .stderr(printed.try_clone()?)
        .status()?;
    let mut text = String::new();
    printed.rewind()?;
    printed.read_to_string(&mut text)?;
    if !status.success() {
        return Err(format!("psql ended early: {status}\n{text}").into());
    }
    let expected = script.with_extension("out");
    Ok(compare::expect_file(&expected, &compare::mask_uuids(&text))?)
}

/// `errors.out` shows every state of the error table, but for those that no SQL can bring about.
fn every_state() -> Result<(), Failed> {
    use queen_core::error::ErrorKind;
    let shown = include_str!("errors.out");
    let elsewhere = |kind| {
        matches!(
            kind,
            // Over HTTP; without the library in memory; a defect.
            ErrorKind::InvalidLease | ErrorKind::NotPreloaded | ErrorKind::LimitExceeded | ErrorKind::Internal
        )
    };
    for kind in ErrorKind::ALL {
        let is_shown = shown.contains(&format!("ERROR:  {}\n", kind.sqlstate()));
        if is_shown == elsewhere(*kind) {
            return Err(format!("{kind:?} ({}): shown {is_shown}", kind.sqlstate()).into());
        }
    }
    Ok(())
}

/// A file that nobody else sees, gone when it is closed.
fn tempfile() -> std::io::Result<File> {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let n = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("queen-sql-{}-{n}", std::process::id()));
    let file = File::options().read(true).append(true).create_new(true).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}
