//! Compression of one block.
//!
//! Creating a zstd context costs more than compressing a small block (it allocates and clears hundreds
//! of kilobytes), so each thread keeps one of each kind.

use std::cell::RefCell;
use zstd::bulk::{Compressor, Decompressor};

/// Most raw bytes that one stored byte can stand for: zstd's run-length block turns 4 bytes into
/// 128 KiB. Whoever claims more than that would make a reader allocate for nothing.
pub(super) const MAX_RATIO: u64 = 32 * 1024;

thread_local! {
    static COMPRESSOR: RefCell<Option<(i32, Compressor<'static>)>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Appends the compressed `raw` to `out`; on an error `out` is as before.
pub(super) fn compress(raw: &[u8], level: i32, out: &mut Vec<u8>) -> Result<(), &'static str> {
    COMPRESSOR.with(|cell| {
        let mut slot = cell.try_borrow_mut().map_err(|_| "the compressor is in use")?;
        if slot.as_ref().is_none_or(|(at, _)| *at != level) {
            let new = Compressor::new(level).map_err(|_| "no compressor at this level")?;
            *slot = Some((level, new));
        }
        let Some((_, compressor)) = slot.as_mut() else {
            return Err("no compressor");
        };
        let start = out.len();
        out.resize(start + zstd::zstd_safe::compress_bound(raw.len()), 0);
        let written = match out.get_mut(start..) {
            Some(room) => compressor.compress_to_buffer(raw, room),
            None => Ok(0),
        };
        match written {
            Ok(length) => {
                out.truncate(start + length);
                Ok(())
            }
            Err(_) => {
                out.truncate(start);
                Err("zstd refused it")
            }
        }
    })
}

/// Decompresses `stored` into exactly `out`, never writing past it.
pub(super) fn decompress(stored: &[u8], out: &mut [u8]) -> Result<(), &'static str> {
    DECOMPRESSOR.with(|cell| {
        let mut slot = cell.try_borrow_mut().map_err(|_| "the decompressor is in use")?;
        if slot.is_none() {
            *slot = Some(Decompressor::new().map_err(|_| "no decompressor")?);
        }
        let Some(decompressor) = slot.as_mut() else {
            return Err("no decompressor");
        };
        let length = decompressor
            .decompress_to_buffer(stored, out)
            .map_err(|_| "it does not decompress to its declared length")?;
        if length == out.len() { Ok(()) } else { Err("it is shorter than its declared length") }
    })
}
