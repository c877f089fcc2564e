//! Where this backend last found the newest row of something.
//!
//! A B-tree scan reads all matching entries of a leaf page at once, so a probe for the last of many costs as much as a
//! page of them. Newer rows only come above: a probe from the place where the last one was found reads a few, and one
//! from the beginning is needed only when nothing is there any more.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;

/// Places that a backend remembers at most.
const REMEMBERED: usize = 50_000;

pub struct Floor<K>(RefCell<Option<HashMap<K, i64>>>);

impl<K: Eq + Hash + Copy> Floor<K> {
    pub const fn new() -> Self {
        Floor(RefCell::new(None))
    }

    pub fn get(&self, key: K) -> Option<i64> {
        self.0.borrow().as_ref()?.get(&key).copied()
    }

    /// Forgets everything: what was found may have been rolled back.
    pub fn clear(&self) {
        *self.0.borrow_mut() = None;
    }

    pub fn set(&self, key: K, place: i64) {
        let mut known = self.0.borrow_mut();
        let known = known.get_or_insert_with(HashMap::new);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(key, place);
    }
}
