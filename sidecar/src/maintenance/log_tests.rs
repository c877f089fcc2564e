//! The log against accidents.

use super::*;
use uuid::Uuid;

/// A folder that goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let path = std::env::temp_dir().join(format!("queen-buffer-{}", Uuid::new_v4()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn names(&self, extension: &str) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = entries.filter(|name| name.ends_with(extension)).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

fn record(tenant: u128, text: &str) -> Record {
    Record { tenant: Tenant(Uuid::from_u128(tenant)), items: 1, array: format!("[{text}]") }
}

fn append(log: &Log, texts: &[&str]) {
    for text in texts {
        log.append(&record(1, text).encode().unwrap(), Count { records: 1, items: 1 }).unwrap();
    }
}

/// Replays all, so many items a call.
fn drain(log: &Log, max_items: usize) -> Vec<String> {
    let mut calls = Vec::new();
    while let Some(chunk) = log.next(max_items, usize::MAX).unwrap() {
        calls.push(chunk.call().unwrap().1);
        log.done(&chunk).unwrap();
    }
    calls
}

#[test]
fn records_come_in_order_and_share_calls() {
    let folder = Folder::new();
    let log = Log::open(&folder.0).unwrap();
    append(&log, &["1", "2", "3", "4", "5"]);
    assert_eq!(log.pending(), Count { records: 5, items: 5 });
    assert_eq!(drain(&log, 2), ["[1,2]", "[3,4]", "[5]"]);
    assert_eq!(log.pending(), Count::default());
    assert!(folder.names(".buf").is_empty(), "what is replayed is removed");
}

#[test]
fn a_call_has_one_tenant() {
    let folder = Folder::new();
    let log = Log::open(&folder.0).unwrap();
    for (tenant, text) in [(1, "1"), (1, "2"), (2, "3"), (1, "4")] {
        log.append(&record(tenant, text).encode().unwrap(), Count { records: 1, items: 1 }).unwrap();
    }
    assert_eq!(drain(&log, 100), ["[1,2]", "[3]", "[4]"]);
}

#[test]
fn a_record_too_large_for_a_call_goes_alone() {
    let folder = Folder::new();
    let log = Log::open(&folder.0).unwrap();
    append(&log, &["1", "2"]);
    assert_eq!(drain(&log, 0), ["[1]", "[2]"]);
}

#[test]
fn what_was_answered_survives_a_restart_and_what_was_replayed_does_not_return() {
    let folder = Folder::new();
    let log = Log::open(&folder.0).unwrap();
    append(&log, &["1", "2", "3"]);
    let first = log.next(1, usize::MAX).unwrap().unwrap();
    log.done(&first).unwrap();
    drop(log);
    let log = Log::open(&folder.0).unwrap();
    assert_eq!(log.pending(), Count { records: 2, items: 2 });
    append(&log, &["4"]);
    assert_eq!(drain(&log, 1), ["[2]", "[3]", "[4]"]);
}

#[test]
fn records_after_a_drained_log_and_a_restart_are_not_taken_for_replayed_ones() {
    let folder = Folder::new();
    for text in ["1", "2", "3"] {
        let log = Log::open(&folder.0).unwrap();
        append(&log, &[text]);
        drop(log);
        let log = Log::open(&folder.0).unwrap();
        assert_eq!(drain(&log, 9), [format!("[{text}]")]);
    }
}

#[test]
fn files_are_of_bounded_size_and_replayed_one_after_the_other() {
    let folder = Folder::new();
    let log = Log::open_with(&folder.0, 60).unwrap();
    append(&log, &["1", "2", "3", "4", "5"]);
    assert_eq!(folder.names(".buf").len(), 3);
    drop(log);
    let log = Log::open_with(&folder.0, 60).unwrap();
    assert_eq!(log.pending().records, 5);
    assert_eq!(drain(&log, 9).concat(), "[1,2][3,4][5]");
}

#[test]
fn a_torn_tail_of_any_length_is_cut_and_nothing_else() {
    let whole = record(1, "3").encode().unwrap();
    for length in [1, HEADER - 1, HEADER, HEADER + 1, whole.len() - 1] {
        let folder = Folder::new();
        let log = Log::open(&folder.0).unwrap();
        append(&log, &["1", "2"]);
        drop(log);
        let file = folder.0.join(&folder.names(".buf")[0]);
        File::options().append(true).open(&file).unwrap().write_all(&whole[..length]).unwrap();
        let log = Log::open(&folder.0).unwrap();
        append(&log, &["4"]);
        assert_eq!(drain(&log, 1), ["[1]", "[2]", "[4]"], "{length} bytes");
        assert_eq!(log.kept_aside(), (0, 0));
    }
}

#[test]
fn a_damaged_file_that_is_not_the_last_is_kept_aside_and_the_rest_goes_on() {
    let folder = Folder::new();
    let log = Log::open_with(&folder.0, 100).unwrap();
    append(&log, &["1", "2", "3", "4", "5"]);
    drop(log);
    let name = folder.names(".buf")[0].clone();
    let path = folder.0.join(&name);
    let mut bytes = std::fs::read(&path).unwrap();
    let length = record(1, "1").encode().unwrap().len();
    bytes[length + HEADER + 2] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let log = Log::open(&folder.0).unwrap();
    assert_eq!(drain(&log, 1), ["[1]", "[4]", "[5]"]);
    assert_eq!(folder.names(".bad"), [name.replace(".buf", ".bad")]);
    assert_eq!(log.kept_aside().0, 1);
    assert_eq!(log.pending(), Count::default());
}

#[test]
fn a_record_that_goes_bad_while_the_server_runs_does_not_keep_the_buffer_from_ending() {
    let folder = Folder::new();
    let log = Log::open(&folder.0).unwrap();
    append(&log, &["1", "2"]);
    let path = folder.0.join(&folder.names(".buf")[0]);
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(drain(&log, 1), ["[1]"]);
    assert_eq!(log.pending(), Count::default());
    append(&log, &["3"]);
    assert_eq!(drain(&log, 1), ["[3]"]);
}

#[test]
fn an_unreadable_position_replays_all_rather_than_nothing() {
    let folder = Folder::new();
    let log = Log::open(&folder.0).unwrap();
    append(&log, &["1", "2"]);
    let first = log.next(1, usize::MAX).unwrap().unwrap();
    log.done(&first).unwrap();
    drop(log);
    std::fs::write(folder.0.join(POSITION), "1 x").unwrap();
    assert_eq!(drain(&Log::open(&folder.0).unwrap(), 9), ["[1,2]"]);
}

#[test]
fn one_process_has_the_folder() {
    let folder = Folder::new();
    let log = Log::open(&folder.0).unwrap();
    assert!(Log::open(&folder.0).is_err());
    drop(log);
    assert!(Log::open(&folder.0).is_ok());
}

#[test]
fn a_write_that_fails_leaves_what_was_there() {
    let folder = Folder::new();
    let log = Log::open(&folder.0).unwrap();
    append(&log, &["1"]);
    // Nothing can be written to a file that is open for reading only.
    let path = folder.0.join(&folder.names(".buf")[0]);
    log.inner().tail = Some(File::open(&path).unwrap());
    assert!(log.append(&record(1, "2").encode().unwrap(), Count { records: 1, items: 1 }).is_err());
    append(&log, &["3"]);
    assert_eq!(log.pending().records, 2);
    assert_eq!(drain(&log, 9).concat(), "[1][3]");
}

#[test]
fn what_is_refused_for_good_is_kept_where_it_can_be_found() {
    let folder = Folder::new();
    let log = Log::open(&folder.0).unwrap();
    append(&log, &["1"]);
    let chunk = log.next(1, 1).unwrap().unwrap();
    log.keep_failed(chunk.end, b"{}").unwrap();
    assert_eq!(log.kept_aside(), (1, 2));
}
