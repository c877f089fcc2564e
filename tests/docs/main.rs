//! The documents' SQL and shell: README.md and docs/*.md, each in a fresh database, in order, as superuser.
//!
//! A fenced block tagged `sql` is run by psql; all blocks of a file share one session. One tagged `sh` is run by a
//! shell of its own, with QUEEN_URL of an HTTP server for the same database. It must not fail, unless the `text` block
//! after it shows an `ERROR`. A `text` block right after (only blank lines between) is the block's output. Compared are
//! words, not layout: uuids and times are masked, and runs of blanks, dashes and table borders count as one blank. Tag a
//! block `sql no-run` or `sh no-run` to leave it out, with a reason in the text.

mod markdown;

use libtest_mimic::{Arguments, Failed, Trial};
use markdown::{Block, Language};
use queen_tests::sidecar::Sidecar;
use queen_tests::{compare, shared_cluster};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Ends each block's output; no document prints it.
const MARK: &str = "=====8<=====";

fn main() {
    let arguments = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let trials = documents(&root).into_iter().map(|document| {
        let name = document.strip_prefix(&root).unwrap_or(&document);
        let name = name.display().to_string();
        Trial::test(name.clone(), move || run(&name, &document))
    });
    libtest_mimic::run(&arguments, trials.collect()).exit()
}

fn documents(root: &Path) -> Vec<PathBuf> {
    let mut documents: Vec<PathBuf> = root
        .join("docs")
        .read_dir()
        .expect("list docs")
        .map(|entry| entry.expect("list docs").path())
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .chain([root.join("README.md")])
        .filter(|path| path.is_file())
        .collect();
    documents.sort();
    documents
}

fn run(name: &str, document: &Path) -> Result<(), Failed> {
    let blocks = markdown::blocks(&fs::read_to_string(document)?);
    if blocks.is_empty() {
        return Ok(());
    }
    let printed = psql(&blocks)?;
    let outputs: Vec<&str> = printed.split(&format!("{MARK}\n")).collect();
    for (block, output) in blocks.iter().zip(&outputs) {
        let place = format!("{name}:{}", block.line);
        match &block.expected {
            Some(expected) if words(expected) != words(output) => {
                let diff = compare::diff(&layout(expected), &layout(output));
                return Err(format!("{place} prints something else\n{diff}").into());
            }
            None if output.lines().any(is_error) => {
                return Err(format!("{place} fails\n{}\n{output}", block.code).into());
            }
            _ => {}
        }
    }
    if outputs.len() <= blocks.len() {
        let line = blocks.get(outputs.len() - 1).map_or(0, |block| block.line);
        return Err(format!("{name}:{line} ends psql's session\n{printed}").into());
    }
    Ok(())
}

/// What one psql session prints for all blocks, each followed by the mark.
fn psql(blocks: &[Block]) -> Result<String, Failed> {
    let cluster = shared_cluster();
    let database = cluster.fresh_database_blocking();
    let scripts = Scripts::new(blocks)?;
    let has_shell = blocks.iter().any(|block| block.language == Language::Shell);
    let server = has_shell.then(|| Sidecar::start(cluster, &database));
    let mut script = String::from("\\pset footer on\n");
    for (n, block) in blocks.iter().enumerate() {
        match block.language {
            Language::Sql => script.push_str(&block.code),
            // Printed by psql, so that it comes in its turn.
            Language::Shell => {
                let file = scripts.file(n);
                script.push_str(&format!("\\echo `sh -eu {} 2>&1 || echo \"ERROR: exit status $?\"`", file.display()));
            }
        }
        script.push_str(&format!("\n\\echo {MARK}\n"));
    }
    // Through a shell, for one pipe that errors share with results.
    let command = cluster.psql_command(&database);
    let mut child = std::process::Command::new("sh")
        .args(["-c", r#"exec "$@" 2>&1"#, "sh"])
        .arg(command.get_program())
        .args(command.get_args())
        .arg("-q")
        .env("LC_ALL", "C.UTF-8")
        .env("PGTZ", "UTC")
        .env("QUEEN_URL", server.as_ref().map_or("", |server| server.url()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().ok_or("psql has no stdin")?;
    let writer = std::thread::spawn(move || stdin.write_all(script.as_bytes()));
    let output = child.wait_with_output()?;
    // psql that ended early has closed its stdin: what it printed tells why.
    let _ = writer.join();
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The shell's blocks as files in a folder, which is removed at the end.
struct Scripts(PathBuf);

impl Scripts {
    fn new(blocks: &[Block]) -> std::io::Result<Scripts> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let folder = format!("queen-docs-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let scripts = Scripts(std::env::temp_dir().join(folder));
        fs::create_dir(&scripts.0)?;
        for (n, block) in blocks.iter().enumerate().filter(|(_, block)| block.language == Language::Shell) {
            fs::write(scripts.file(n), format!("{}\n", block.code))?;
        }
        Ok(scripts)
    }

    fn file(&self, n: usize) -> PathBuf {
        self.0.join(format!("{n}.sh"))
    }
}

impl Drop for Scripts {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

fn is_error(line: &str) -> bool {
    ["ERROR:", "FATAL:", "PANIC:", "invalid command"].iter().any(|mark| line.starts_with(mark))
}

/// What is compared: words without layout.
fn words(text: &str) -> Vec<String> {
    layout(text).split_whitespace().map(ToOwned::to_owned).collect()
}

/// What is shown: trimmed lines, masked, without table borders.
fn layout(text: &str) -> String {
    let mut lines = String::new();
    for line in compare::mask_uuids(text).lines() {
        let border = line.contains("--") && line.chars().all(|c| matches!(c, '-' | '+' | ' '));
        if !border && !line.trim().is_empty() {
            let words: Vec<&str> = line.split_whitespace().collect();
            lines.push_str(&markdown::mask_times(&words.join(" ")));
            lines.push('\n');
        }
    }
    lines
}
