//! How much memory a pop's answer may take.
//!
//! A pop takes room first, and the database is told how much: it claims what fits. Only a single message that is longer
//! fails there, and is not claimed; then it is known what is needed. The answer keeps room for its size until its last byte
//! has been handed to the kernel.

use crate::budget::{Budget, ORDINARY, Room, SMALL};

/// What a pop takes at first: as much as it can get of these. So many that are under way at once get a fair part each.
const ASKED: [usize; 2] = [64 << 20, 16 << 20];
/// Bytes that a message needs beside its text in the database's answer and the names that go with it: what the wire repeats
/// with each, and reading it.
const MESSAGE: usize = 640;
/// Of them, bytes in the database's text that it does not count when it is told how many there may be.
const AROUND: usize = 200;

/// What a pop may bring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// Messages at most.
    pub messages: i32,
    /// Bytes of the database's answer at most.
    pub text: i32,
    /// Bytes of the names that go with each message.
    names: usize,
}

impl Allowance {
    /// What fits into so many bytes, of a pop that wants so many messages, each with so many bytes of names.
    fn within(bytes: usize, messages: i32, names: usize) -> Allowance {
        let each = MESSAGE + names;
        let most = i32::try_from(bytes / 2 / each).unwrap_or(i32::MAX);
        let messages = messages.min(most).max(1);
        let text = bytes.saturating_sub(messages as usize * each) / 2;
        Allowance { messages, text: i32::try_from(text).unwrap_or(i32::MAX), names }
    }

    /// What the database is told: bytes of the messages themselves, of which such a text can be made.
    pub fn payload(self) -> i32 {
        let around = self.messages as usize * AROUND;
        i32::try_from((self.text as usize).saturating_sub(around)).unwrap_or(i32::MAX).max(1)
    }

    /// The same for a text that turned out to have so many bytes; it may have some more the next time.
    #[must_use]
    pub fn for_text(self, bytes: usize) -> Allowance {
        Allowance { text: i32::try_from(bytes + bytes / 8).unwrap_or(i32::MAX), ..self }
    }

    /// Bytes of room that making such an answer needs: the text is there twice, as it comes in and as it goes out.
    pub fn bytes(self) -> usize {
        2 * self.text as usize + self.messages as usize * (MESSAGE + self.names)
    }
}

/// Takes what can be had at once for a pop of so many messages, each with so many bytes of names: there is always some.
pub fn at_once(budget: &Budget, messages: i32, names: usize) -> (Option<Room>, Allowance) {
    let room = ASKED.iter().find_map(|&bytes| budget.take_up_to(bytes)).or_else(|| budget.take(ORDINARY));
    let allowance = Allowance::within(room.as_ref().map_or(SMALL, Room::bytes), messages, names);
    (room, allowance)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn an_allowance_needs_no_more_than_it_was_made_of() {
        for bytes in [SMALL, ORDINARY, ASKED[0]] {
            for messages in [1, 200, 1_000_000] {
                for names in [0, 280, 2000] {
                    let allowance = Allowance::within(bytes, messages, names);
                    assert!(allowance.bytes() <= bytes && allowance.messages >= 1, "{allowance:?}");
                    assert!(allowance.bytes() + 2 >= bytes, "{allowance:?}");
                    assert!(allowance.payload() as usize >= bytes / 12, "{allowance:?}");
                }
            }
        }
    }

    #[test]
    fn there_is_always_room_for_a_small_answer() {
        let budget = Budget::new(16 * MIB);
        let (room, large) = at_once(&budget, 200, 0);
        assert!(room.is_some() && large.messages == 200 && large.text as usize > 2 * MIB, "{large:?}");
        let _all: Vec<Room> = std::iter::from_fn(|| budget.take(MIB)).collect();
        let (room, small) = at_once(&budget, 200, 0);
        assert!(room.is_none() && small.messages > 10 && small.text > 10_000, "{small:?}");
    }

    // Each message repeats them.
    #[test]
    fn long_names_leave_room_for_fewer_messages() {
        let (short, long) = (Allowance::within(ORDINARY, i32::MAX, 30), Allowance::within(ORDINARY, i32::MAX, 2000));
        assert!(long.messages < short.messages / 3, "{short:?} {long:?}");
        assert!(long.bytes() <= ORDINARY && long.messages as usize * 2000 < ORDINARY);
    }
}
