//! The buffer on disk: records in order, in files `<number>.buf`, appended at the end of the last and replayed from the
//! beginning of the first. Everything here blocks.
//!
//! Invariants:
//! - What [`Log::append`] has answered is on the disk, and is read before anything appended later.
//! - A file's known length ends with a whole record. After a write that failed the file is cut there and not written to
//!   again: what a failed sync has left in it is not known.
//! - Only the last file can have a torn tail, by a crash; it is cut when the log is opened. A damaged record elsewhere is
//!   an accident of the disk: the file is kept as `<number>.bad` once what stands before is replayed, and the rest goes on.
//! - `position` says what has been replayed. It may lag behind by one call, never be ahead.

use super::files;
use super::record::{HEADER, Record};
use crate::tenant::Tenant;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

const POSITION: &str = "position";
const FAILED: &str = "failed";

/// Bytes after which the next file begins.
const FILE_BYTES: u64 = 64 << 20;

/// The files.
pub struct Log {
    folder: PathBuf,
    file_bytes: u64,
    inner: Mutex<Inner>,
    /// Records to replay; read without waiting for the disk.
    records: AtomicU64,
    /// Items in them.
    items: AtomicU64,
    _lock: File,
}

#[derive(Default)]
struct Inner {
    segments: VecDeque<Segment>,
    /// The last segment, when it can be written to.
    tail: Option<File>,
    /// What has been replayed of the first segment.
    done: u64,
    next_number: u64,
}

#[derive(Clone, Copy)]
struct Segment {
    number: u64,
    /// Bytes that are known to be records.
    length: u64,
    /// There is something else behind them.
    damaged: bool,
    /// Records in it that are still to be replayed, as far as they were counted, and their items.
    left: Count,
}

/// A number of records, and of their items.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Count {
    /// Requests.
    pub records: u64,
    /// Messages.
    pub items: u64,
}

/// Records to replay.
#[derive(Default, Debug)]
pub struct Chunk {
    /// In order, and of one tenant.
    pub records: Vec<Record>,
    /// What to tell [`Log::done`] when they are replayed.
    pub end: End,
}

impl Chunk {
    /// Items of its records.
    pub fn items(&self) -> u64 {
        self.records.iter().map(|record| u64::from(record.items)).sum()
    }

    /// Whose they are, and their items as one JSON array. None: there are no records.
    pub fn call(&self) -> Option<(Tenant, String)> {
        let tenant = self.records.first()?.tenant;
        let inside = |record: &Record| record.array.trim().strip_prefix('[')?.strip_suffix(']').map(str::to_owned);
        let items: Vec<String> = self.records.iter().filter_map(inside).filter(|items| !items.is_empty()).collect();
        Some((tenant, format!("[{}]", items.join(","))))
    }
}

/// A place in the log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct End {
    number: u64,
    offset: u64,
}

impl Log {
    /// Opens the log in a folder, which is made if it is not there, and cuts the torn tail of a crash.
    ///
    /// # Errors
    /// The folder cannot be used, or another process uses it.
    pub fn open(folder: &Path) -> io::Result<Log> {
        Log::open_with(folder, FILE_BYTES)
    }

    /// As [`Log::open`], with another size of files.
    pub(super) fn open_with(folder: &Path, file_bytes: u64) -> io::Result<Log> {
        files::make_folder(&folder.join(FAILED))?;
        files::sync_folder(folder)?;
        if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            files::sync_folder(parent)?;
        }
        let lock = files::lock(folder)?;
        let mut inner = Inner { next_number: 1, ..Inner::default() };
        let position = position(folder);
        let numbers = numbers(folder)?;
        let last = numbers.last().copied();
        for number in numbers {
            inner.next_number = number + 1;
            let from = if position.number == number { position.offset } else { 0 };
            if number < position.number {
                // Replayed; the crash came before it was removed.
                files::remove(folder, &name(number))?;
                continue;
            }
            let mut segment = scan(folder, number, from)?;
            if segment.damaged && Some(number) == last {
                let file = File::options().write(true).open(folder.join(name(number)))?;
                tracing::warn!(file = name(number), length = segment.length, "the buffer's torn tail is cut");
                file.set_len(segment.length)?;
                file.sync_all()?;
                segment.damaged = false;
            }
            if inner.segments.is_empty() {
                inner.done = from.min(segment.length);
            }
            inner.segments.push_back(segment);
        }
        inner.next_number = inner.next_number.max(position.number + 1);
        let (records, items) =
            inner.segments.iter().fold((0, 0), |sum, s| (sum.0 + s.left.records, sum.1 + s.left.items));
        Ok(Log {
            folder: folder.to_owned(),
            file_bytes,
            inner: Mutex::new(inner),
            records: records.into(),
            items: items.into(),
            _lock: lock,
        })
    }

    /// What is there to replay.
    pub fn pending(&self) -> Count {
        Count { records: self.records.load(SeqCst), items: self.items.load(SeqCst) }
    }

    /// Appends records, and returns when they are on the disk.
    ///
    /// # Errors
    /// They are not in the log.
    pub fn append(&self, bytes: &[u8], count: Count) -> io::Result<()> {
        let mut inner = self.inner();
        if inner.tail.is_none() || inner.segments.back().is_none_or(|last| last.length >= self.file_bytes) {
            let number = inner.next_number;
            inner.tail = None;
            let file = files::options().create_new(true).append(true).open(self.folder.join(name(number)))?;
            inner.next_number += 1;
            files::sync_folder(&self.folder)?;
            inner.tail = Some(file);
            if inner.segments.is_empty() {
                inner.done = 0;
            }
            inner.segments.push_back(Segment { number, length: 0, damaged: false, left: Count::default() });
        }
        let Inner { tail: Some(file), segments, .. } = &mut *inner else {
            return Err(io::Error::other("no file to write to"));
        };
        let Some(last) = segments.back_mut() else { return Err(io::Error::other("no file to write to")) };
        match file.write_all(bytes).and_then(|()| file.sync_data()) {
            Ok(()) => {
                last.length += bytes.len() as u64;
                last.left.records += count.records;
                last.left.items += count.items;
                self.records.fetch_add(count.records, SeqCst);
                self.items.fetch_add(count.items, SeqCst);
                Ok(())
            }
            Err(error) => {
                _ = file.set_len(last.length).and_then(|()| file.sync_all());
                inner.tail = None;
                Err(error)
            }
        }
    }

    /// The next records to replay: of one tenant, and no more than this unless the first alone is more. None: there are
    /// none.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn next(&self, max_items: usize, max_bytes: usize) -> io::Result<Option<Chunk>> {
        loop {
            let (segment, done) = {
                let inner = self.inner();
                let Some(segment) = inner.segments.front() else { return Ok(None) };
                (*segment, inner.done)
            };
            let mut chunk = Chunk { records: Vec::new(), end: End { number: segment.number, offset: done } };
            let mut damaged = segment.damaged;
            let file = File::open(self.folder.join(name(segment.number)))?;
            let (mut items, mut bytes) = (0, 0);
            while chunk.end.offset < segment.length {
                let Some((record, end)) = record_at(&file, chunk.end.offset, segment.length)? else {
                    damaged = true;
                    break;
                };
                items += record.items as usize;
                bytes += record.array.len();
                let first = chunk.records.first().map(|first| first.tenant);
                let more = items <= max_items && bytes <= max_bytes && first == Some(record.tenant);
                if first.is_some() && !more {
                    return Ok(Some(chunk));
                }
                chunk.records.push(record);
                chunk.end.offset = end;
            }
            if !chunk.records.is_empty() {
                return Ok(Some(chunk));
            }
            self.retire(segment, damaged)?;
        }
    }

    /// These records need not be replayed any more.
    ///
    /// # Errors
    /// It could not be noted; they are replayed again after a restart.
    pub fn done(&self, chunk: &Chunk) -> io::Result<()> {
        let end = chunk.end;
        let count = Count { records: chunk.records.len() as u64, items: chunk.items() };
        {
            let mut inner = self.inner();
            if let Some(first) = inner.segments.front_mut().filter(|first| first.number == end.number) {
                let count =
                    Count { records: count.records.min(first.left.records), items: count.items.min(first.left.items) };
                first.left.records -= count.records;
                first.left.items -= count.items;
                inner.done = end.offset;
                self.forget(count);
            }
        }
        files::put(&self.folder, POSITION, format!("{} {}\n", end.number, end.offset).as_bytes())
    }

    /// Keeps aside what the database refuses for good, where a person finds it.
    ///
    /// # Errors
    /// It is not there, so it must not be given up.
    pub fn keep_failed(&self, end: End, content: &[u8]) -> io::Result<()> {
        files::put(&self.folder.join(FAILED), &format!("{:016}-{}.json", end.number, end.offset), content)
    }

    /// How many files were kept aside, and their bytes.
    pub fn kept_aside(&self) -> (u64, u64) {
        let entries = |folder: &Path, wanted: &str| -> Vec<u64> {
            let wanted = std::ffi::OsStr::new(wanted);
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let wanted = entries.filter(|entry| entry.path().extension() == Some(wanted));
            wanted.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.len()).collect()
        };
        let mut sizes = entries(&self.folder.join(FAILED), "json");
        sizes.extend(entries(&self.folder, "bad"));
        (sizes.len() as u64, sizes.iter().sum())
    }

    /// A segment is replayed: away with it, or aside when there is more in it than could be read. Not if records came
    /// meanwhile.
    fn retire(&self, seen: Segment, damaged: bool) -> io::Result<()> {
        let mut inner = self.inner();
        if inner.segments.front().is_none_or(|now| now.number != seen.number || now.length != seen.length) {
            return Ok(());
        }
        if damaged {
            let aside = self.folder.join(format!("{:016}.bad", seen.number));
            tracing::error!(file = %aside.display(), "a file of the buffer is damaged and kept aside");
            std::fs::rename(self.folder.join(name(seen.number)), aside)?;
            files::sync_folder(&self.folder)?;
        } else {
            files::remove(&self.folder, &name(seen.number))?;
        }
        inner.segments.pop_front();
        // None is left unless they were damaged.
        self.forget(seen.left);
        inner.done = 0;
        if inner.segments.is_empty() {
            inner.tail = None;
        }
        Ok(())
    }

    fn forget(&self, count: Count) {
        self.records.fetch_sub(count.records, SeqCst);
        self.items.fetch_sub(count.items, SeqCst);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(number: u64) -> String {
    format!("{number:016}.buf")
}

fn numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number: Option<u64> =
            name.to_str().and_then(|name| name.strip_suffix(".buf")).and_then(|number| number.parse().ok());
        numbers.extend(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// What is noted as replayed; nothing when that cannot be read, and then all is replayed again.
fn position(folder: &Path) -> End {
    let read = || {
        let text = std::fs::read_to_string(folder.join(POSITION)).ok()?;
        let (number, offset) = text.trim().split_once(' ')?;
        Some(End { number: number.parse().ok()?, offset: offset.parse().ok()? })
    };
    read().unwrap_or_default()
}

/// Reads a whole segment; what stands before `from` is not counted.
fn scan(folder: &Path, number: u64, from: u64) -> io::Result<Segment> {
    let file = File::open(folder.join(name(number)))?;
    let total = file.metadata()?.len();
    let (mut length, mut left) = (0, Count::default());
    while length < total {
        let Some((record, end)) = record_at(&file, length, total)? else { break };
        if length >= from {
            left.records += 1;
            left.items += u64::from(record.items);
        }
        length = end;
    }
    Ok(Segment { number, length, damaged: length < total, left })
}

/// The record at a place and where it ends; None if there is none.
fn record_at(file: &File, at: u64, total: u64) -> io::Result<Option<(Record, u64)>> {
    let mut header = [0; HEADER];
    let start = at + HEADER as u64;
    if start > total {
        return Ok(None);
    }
    file.read_exact_at(&mut header, at)?;
    let Ok((length, sum)) = Record::header(&header) else { return Ok(None) };
    let end = start + length as u64;
    if end > total {
        return Ok(None);
    }
    let mut body = vec![0; length];
    file.read_exact_at(&mut body, start)?;
    Ok(Record::body(&body, sum).ok().map(|record| (record, end)))
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
