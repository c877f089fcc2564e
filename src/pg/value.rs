//! Values on their way between Rust and the server.
#![allow(unsafe_code)]

use pgrx::pg_sys::{self, Datum};

/// A value for a column, a scan key or a result.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int4(i32),
    Int8(i64),
    /// Server microseconds.
    Time(i64),
    Uuid(u128),
    Text(&'a str),
    Bytes(&'a [u8]),
    /// A datum that lives at least as long as the call.
    Raw(Datum),
}

impl Value<'_> {
    /// The datum, allocated in the current memory context where it is by reference; None for NULL.
    pub fn datum(self) -> Option<Datum> {
        Some(match self {
            Value::Null => return None,
            Value::Bool(b) => Datum::from(b),
            Value::Int4(n) => Datum::from(n),
            Value::Int8(n) | Value::Time(n) => Datum::from(n),
            Value::Uuid(id) => {
                // SAFETY: 16 bytes are allocated and written; pg_uuid_t is 16 bytes in network order.
                unsafe {
                    let p = pg_sys::palloc(16).cast::<u8>();
                    std::ptr::copy_nonoverlapping(id.to_be_bytes().as_ptr(), p, 16);
                    Datum::from(p)
                }
            }
            Value::Text(s) => varlena(s.as_bytes()),
            Value::Bytes(b) => varlena(b),
            Value::Raw(d) => d,
        })
    }

    pub fn opt_text(s: Option<&str>) -> Value<'_> {
        s.map_or(Value::Null, Value::Text)
    }

    /// An array of text.
    pub fn texts(items: &[String]) -> Value<'static> {
        use pgrx::IntoDatum;
        items.to_vec().into_datum().map_or(Value::Null, Value::Raw)
    }

    pub fn opt_uuid(id: Option<u128>) -> Value<'static> {
        id.map_or(Value::Null, Value::Uuid)
    }

    pub fn opt_int8(n: Option<i64>) -> Value<'static> {
        n.map_or(Value::Null, Value::Int8)
    }

    pub fn opt_time(t: Option<i64>) -> Value<'static> {
        t.map_or(Value::Null, Value::Time)
    }
}

/// Room for the values of a row that are by reference, so that a row is one allocation. Its datums live as long as it does.
pub(super) struct Room {
    // Words: a varlena and what follows it are aligned.
    words: Vec<u64>,
    used: usize,
}

/// Header of a varlena that is neither compressed nor short.
const HEADER: usize = 4;
/// The server's own limit: its header has 30 bits for the size.
const LONGEST: usize = (1 << 30) - 1 - HEADER;

impl Room {
    /// Enough for this row.
    pub fn of(row: &[Value<'_>]) -> Self {
        let words = row.iter().map(|value| match value {
            Value::Uuid(_) => 2,
            Value::Text(s) => (HEADER + s.len()).div_ceil(8),
            Value::Bytes(b) => (HEADER + b.len()).div_ceil(8),
            _ => 0,
        });
        Self { words: vec![0; words.sum()], used: 0 }
    }

    /// The datum of one of the row's values; None for NULL.
    pub fn datum(&mut self, value: Value<'_>) -> Option<Datum> {
        match value {
            Value::Uuid(id) => Some(self.uuid(id)),
            Value::Text(s) => Some(self.varlena(s.as_bytes())),
            Value::Bytes(b) => Some(self.varlena(b)),
            other => other.datum(),
        }
    }

    #[inline]
    fn varlena(&mut self, bytes: &[u8]) -> Datum {
        if bytes.len() > LONGEST {
            pgrx::error!("a value of {} bytes is too long for a column", bytes.len());
        }
        // The two other bits of the size say that it is neither compressed nor short; where depends on the byte order.
        let size = (HEADER + bytes.len()) as u32;
        let header = if cfg!(target_endian = "big") { size } else { size << 2 };
        let place = self.take(HEADER + bytes.len());
        // SAFETY: so many bytes are free there.
        unsafe {
            place.cast::<u32>().write(header);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.add(HEADER), bytes.len());
        }
        Datum::from(place)
    }

    #[inline]
    fn uuid(&mut self, id: u128) -> Datum {
        let place = self.take(16);
        // SAFETY: so many bytes are free there, and words are not aligned as u128 is.
        unsafe { place.cast::<u128>().write_unaligned(id.to_be()) };
        Datum::from(place)
    }

    /// The next place for so many bytes.
    #[inline]
    fn take(&mut self, bytes: usize) -> *mut u8 {
        let words = bytes.div_ceil(8);
        let place = self.words[self.used..self.used + words].as_mut_ptr();
        self.used += words;
        place.cast()
    }
}

/// A varlena with a 4-byte header.
fn varlena(bytes: &[u8]) -> Datum {
    // SAFETY: length + header bytes are allocated; callers keep values far below 1 GiB and palloc refuses more.
    unsafe { Datum::from(pg_sys::cstring_to_text_with_len(bytes.as_ptr().cast(), bytes.len() as i32)) }
}

/// The bytes of a varlena datum, decompressed and fetched from TOAST where needed; they live in the current memory
/// context or in the tuple.
///
/// # Safety
/// `datum` must be a non-null varlena that outlives `'a`.
pub unsafe fn bytes_of<'a>(datum: Datum) -> &'a [u8] {
    // SAFETY: the caller promises a varlena.
    unsafe {
        let p = pg_sys::pg_detoast_datum_packed(datum.cast_mut_ptr());
        std::slice::from_raw_parts(pgrx::varlena::vardata_any(p).cast(), pgrx::varlena::varsize_any_exhdr(p))
    }
}

/// The uuid behind a datum.
///
/// # Safety
/// `datum` must be a non-null uuid.
pub unsafe fn uuid_of(datum: Datum) -> u128 {
    // SAFETY: the caller promises 16 bytes.
    unsafe {
        let mut b = [0u8; 16];
        std::ptr::copy_nonoverlapping(datum.cast_mut_ptr::<u8>(), b.as_mut_ptr(), 16);
        u128::from_be_bytes(b)
    }
}
