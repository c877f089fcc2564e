//! Small things done with files, so that they last. What is in them are people's messages: only the owner reads them.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Makes a folder and those above it, where they are not there.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// For files that are made.
pub fn options() -> OpenOptions {
    let mut options = File::options();
    options.mode(0o600);
    options
}

/// Makes what was created, renamed or removed in a folder last.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Puts a whole file in its place: it is there as a whole, or not at all.
pub fn put(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let (path, draft) = (folder.join(name), folder.join(format!("{name}.new")));
    let mut file = options().create(true).write(true).truncate(true).open(&draft)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&draft, &path)?;
    sync_folder(folder)
}

/// Removes a file for good; that it is not there is as well.
pub fn remove(folder: &Path, name: &str) -> io::Result<()> {
    match std::fs::remove_file(folder.join(name)) {
        Ok(()) => sync_folder(folder),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Takes a folder for this process alone, until the answer is dropped.
pub fn lock(folder: &Path) -> io::Result<File> {
    let file = options().create(true).truncate(false).write(true).open(folder.join("lock"))?;
    file.try_lock().map_err(|error| match error {
        std::fs::TryLockError::WouldBlock => io::Error::other("another process uses the folder"),
        std::fs::TryLockError::Error(error) => error,
    })?;
    Ok(file)
}
