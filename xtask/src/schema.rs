//! The install script `queen--VERSION.sql`: the files that `sql/install.list` names, in its order.
//!
//! The list has one path below `sql/` a line; `functions/*.sql` means all of that folder, sorted;
//! `#` begins a comment. A script below `sql/` that no line names is an error, and so is one that
//! two lines name: a forgotten file must not become a missing function. Not in the list are the
//! upgrade steps (`queen--FROM--TO.sql`), which are installed as they are, and `full/`, which keeps
//! the assembled script of each version, so that a change of the schema shows in review.

use crate::{NAME, VERSION};
use eyre::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Refuses psql, which would run the script outside of `CREATE EXTENSION`.
const GUARD: &str = r#"\echo Use "CREATE EXTENSION queen" to load this file. \quit"#;

pub fn file_name() -> String {
    format!("{NAME}--{VERSION}.sql")
}

/// The whole install script.
pub fn assemble(sql: &Path) -> Result<String> {
    let files = listed(sql)?;
    let unlisted: Vec<String> = scripts(sql)?.into_iter().filter(|f| !files.contains(f)).collect();
    ensure!(unlisted.is_empty(), "in no line of sql/install.list: {}", unlisted.join(", "));
    let mut script = format!("{GUARD}\n");
    for file in files {
        let text = read(&sql.join(&file))?;
        script.push_str(&format!("\n-- {file}\n\n{}\n", text.trim()));
    }
    Ok(script)
}

/// Keeps the assembled script in the tree.
pub fn write(sql: &Path) -> Result<()> {
    let path = kept(sql);
    fs::create_dir_all(sql.join("full"))?;
    fs::write(&path, assemble(sql)?).wrap_err_with(|| format!("cannot write {}", path.display()))?;
    println!("wrote {}", path.display());
    Ok(())
}

/// Fails when the script in the tree is not the one that would be assembled now.
pub fn check(sql: &Path) -> Result<()> {
    let path = kept(sql);
    let now = assemble(sql)?;
    ensure!(
        fs::read_to_string(&path).is_ok_and(|kept| kept == now),
        "{} is not current: run `cargo xtask schema --write` and commit it",
        path.display()
    );
    println!("{} is current", path.display());
    Ok(())
}

/// The upgrade steps, by file name.
pub fn steps(sql: &Path) -> Result<Vec<PathBuf>> {
    let mut steps: Vec<PathBuf> = entries(sql)?
        .into_iter()
        .filter(|path| path.file_name().is_some_and(|n| is_step(&n.to_string_lossy())))
        .collect();
    steps.sort();
    Ok(steps)
}

fn kept(sql: &Path) -> PathBuf {
    sql.join("full").join(file_name())
}

fn is_step(file: &str) -> bool {
    file.strip_prefix(NAME)
        .and_then(|rest| rest.strip_suffix(".sql"))
        .is_some_and(|rest| rest.matches("--").count() == 2 && rest.starts_with("--"))
}

/// The list's files in its order, as paths below `sql`.
fn listed(sql: &Path) -> Result<Vec<String>> {
    let list = read(&sql.join("install.list"))?;
    let mut files = Vec::new();
    let mut seen = BTreeSet::new();
    for line in list.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let found = match line.strip_suffix("*.sql") {
            _ if line.is_empty() => continue,
            Some(folder) => folder_scripts(sql, folder.trim_end_matches('/'))?,
            None => vec![line.to_owned()],
        };
        ensure!(!found.is_empty(), "sql/install.list: nothing matches {line}");
        for file in found {
            ensure!(sql.join(&file).is_file(), "sql/install.list: no file sql/{file}");
            ensure!(seen.insert(file.clone()), "sql/install.list: {file} comes twice");
            files.push(file);
        }
    }
    Ok(files)
}

/// All scripts that have to be in the list.
fn scripts(sql: &Path) -> Result<BTreeSet<String>> {
    let mut scripts = BTreeSet::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        scripts.extend(folder_scripts(sql, &folder)?);
        for path in entries(&sql.join(&folder))? {
            let name = below(sql, &path)?;
            if path.is_dir() && name != "full" {
                folders.push(name);
            }
        }
    }
    Ok(scripts)
}

/// The scripts of one folder, not of the folders in it, sorted; without upgrade steps.
fn folder_scripts(sql: &Path, folder: &str) -> Result<Vec<String>> {
    let mut scripts = Vec::new();
    for path in entries(&sql.join(folder))? {
        let name = below(sql, &path)?;
        if path.is_file() && name.ends_with(".sql") && !is_step(&name) {
            scripts.push(name);
        }
    }
    scripts.sort();
    Ok(scripts)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    fs::read_dir(folder)
        .wrap_err_with(|| format!("cannot list {}", folder.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect()
}

fn below(sql: &Path, path: &Path) -> Result<String> {
    match path.strip_prefix(sql)?.to_str() {
        Some(name) => Ok(name.to_owned()),
        None => bail!("not UTF-8: {}", path.display()),
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).wrap_err_with(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A folder `sql/` of its own with these files, removed at the end.
    struct Sql(PathBuf);

    impl Sql {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let folder = std::env::temp_dir().join(format!("queen-xtask-{}-{name}", std::process::id()));
            for (file, text) in files {
                let path = folder.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(folder)
        }

        fn error(&self) -> String {
            assemble(&self.0).unwrap_err().to_string()
        }
    }

    impl Drop for Sql {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn concatenates_in_the_order_of_the_list() {
        let sql = Sql::new(
            "order",
            &[
                ("install.list", "# first\n20-b.sql\nfunctions/*.sql # all\n10-a.sql\n"),
                ("10-a.sql", "a;\n"),
                ("20-b.sql", "b;\n"),
                ("functions/z.sql", "z;"),
                ("functions/y.sql", "\ny;\n"),
                ("queen--0.1.0--0.2.0.sql", "step;"),
                ("full/queen--0.0.9.sql", "old;"),
            ],
        );
        let script = assemble(&sql.0).unwrap();
        let lines: Vec<&str> = script.lines().filter(|l| l.ends_with(';')).collect();
        assert!(script.starts_with(GUARD));
        assert_eq!(lines, ["b;", "y;", "z;", "a;"]);
        assert_eq!(steps(&sql.0).unwrap(), [sql.0.join("queen--0.1.0--0.2.0.sql")]);
    }

    #[test]
    fn a_forgotten_file_is_an_error() {
        let sql = Sql::new("forgotten", &[("install.list", "a.sql\n"), ("a.sql", ""), ("x/b.sql", "")]);
        assert!(sql.error().contains("x/b.sql"), "{}", sql.error());
    }

    #[test]
    fn a_file_named_twice_is_an_error() {
        let sql = Sql::new("twice", &[("install.list", "x/*.sql\nx/a.sql\n"), ("x/a.sql", "")]);
        assert!(sql.error().contains("x/a.sql comes twice"), "{}", sql.error());
    }

    #[test]
    fn a_missing_file_is_an_error() {
        let sql = Sql::new("missing", &[("install.list", "a.sql\n")]);
        assert!(sql.error().contains("no file sql/a.sql"), "{}", sql.error());
    }

    #[test]
    fn upgrade_steps_have_two_versions() {
        assert!(is_step("queen--0.1.0--0.2.0.sql"));
        assert!(!is_step("queen--0.1.0.sql"));
        assert!(!is_step("functions/queen.sql"));
    }
}
