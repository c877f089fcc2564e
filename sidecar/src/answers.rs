//! How much memory a pop's answer may take.
//!
//! How long an answer is, the database knows only when it has made it. So a pop takes room first, for as long a one as there
//! may be, and the database is told: what is longer fails there, and claims nothing. Then it is known what is needed.
//! The answer keeps room for its size until its last byte has been handed to the kernel.

use crate::budget::{Budget, ORDINARY, Room, SMALL};

/// What a pop takes at first, at most: enough to make the largest common answer.
const MOST: usize = 192 << 20;
/// Bytes that a message needs beside its text in the database's answer: what the wire repeats with each, and reading it.
const MESSAGE: usize = 640;

/// What a pop may bring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// Messages at most.
    pub messages: i32,
    /// Bytes of the database's answer at most.
    pub text: i32,
}

impl Allowance {
    /// What fits into so many bytes, of a pop that wants so many messages.
    fn within(bytes: usize, messages: i32) -> Allowance {
        let most = i32::try_from(bytes / 2 / MESSAGE).unwrap_or(i32::MAX);
        let messages = messages.min(most).max(1);
        let text = bytes.saturating_sub(messages as usize * MESSAGE) / 2;
        Allowance { messages, text: i32::try_from(text).unwrap_or(i32::MAX) }
    }

    /// The same for a text that turned out to have so many bytes; it may have some more the next time.
    #[must_use]
    pub fn for_text(self, bytes: usize) -> Allowance {
        Allowance { text: i32::try_from(bytes + bytes / 8).unwrap_or(i32::MAX), ..self }
    }

    /// Bytes of room that making such an answer needs: the text is there twice, as it comes in and as it goes out.
    pub fn bytes(self) -> usize {
        2 * self.text as usize + self.messages as usize * MESSAGE
    }
}

/// Takes what can be had at once for a pop of so many messages: there is always some.
pub fn at_once(budget: &Budget, messages: i32) -> (Option<Room>, Allowance) {
    let room = budget.take_up_to(MOST).or_else(|| budget.take(ORDINARY));
    let allowance = Allowance::within(room.as_ref().map_or(SMALL, Room::bytes), messages);
    (room, allowance)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn an_allowance_needs_no_more_than_it_was_made_of() {
        for bytes in [SMALL, ORDINARY, MOST] {
            for messages in [1, 200, 1_000_000] {
                let allowance = Allowance::within(bytes, messages);
                assert!(allowance.bytes() <= bytes && allowance.messages >= 1, "{allowance:?}");
                assert!(allowance.bytes() + 2 >= bytes, "{allowance:?}");
            }
        }
    }

    #[test]
    fn there_is_always_room_for_a_small_answer() {
        let budget = Budget::new(16 * MIB);
        let (room, large) = at_once(&budget, 200);
        assert!(room.is_some() && large.messages == 200 && large.text as usize > 2 * MIB, "{large:?}");
        let _all: Vec<Room> = std::iter::from_fn(|| budget.take(MIB)).collect();
        let (room, small) = at_once(&budget, 200);
        assert!(room.is_none() && small.messages > 10 && small.text > 10_000, "{small:?}");
    }
}
