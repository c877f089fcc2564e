//! Random histories, settled by the real implementation and by a second, plainer one.

use super::Status::{Completed, DeadLetter, Failed, Hopeless, Retry};
use super::*;
use proptest::prelude::*;

const NOW: i64 = 1_000;
const W: u128 = 77;

/// The rules once more, message by message, without a thought for speed.
fn reference(
    cursor: &Cursor,
    lease_id: Option<u128>,
    items: &[Item],
    policy: &Policy,
) -> (Cursor, Option<i64>, Vec<Verdict>) {
    let lease = cursor.lease.clone();
    let live = lease.as_ref().is_some_and(|l| l.expires_at > NOW);
    let mut verdicts = vec![Verdict::default(); items.len()];
    if lease_id.is_some() && !(live && lease.as_ref().map(|l| l.id) == lease_id) {
        verdicts.iter_mut().for_each(|v| v.error = Some(INVALID_LEASE));
        return (cursor.clone(), None, verdicts);
    }
    let may_fail = lease.is_some() && (lease_id.is_some() || !live);
    // Without a lease any offset will do; the histories stay within a hundred.
    let end = lease.as_ref().map_or(cursor.committed + 100, |l| l.batch_end);
    for (item, verdict) in items.iter().zip(&mut verdicts) {
        let good = item.status == Completed;
        let error = match item.place {
            Place::At(at) if at <= cursor.committed && good => {
                verdict.noop = true;
                None
            }
            Place::At(at) if at <= cursor.committed => Some(ALREADY_COMMITTED),
            Place::At(at) if at > end => Some(UNRESOLVABLE),
            Place::Nowhere => Some(UNRESOLVABLE),
            Place::At(_) if good || may_fail => None,
            Place::At(_) if lease.is_some() => Some(INVALID_LEASE),
            Place::At(_) => Some(NO_LEASED_BATCH),
        };
        verdict.error = error;
        verdict.success = error.is_none();
    }
    // Walk the span upwards until a failure stops the walk.
    let mut next = cursor.clone();
    let mut terminal = None;
    let mut file = None;
    for at in cursor.committed + 1..=end {
        let says = |status| items.contains(&Item { place: Place::At(at), status });
        if says(DeadLetter) || says(Hopeless) || says(Failed) || says(Retry) {
            if may_fail {
                next.lease = None;
                let exhausted = says(Failed) && cursor.retries >= policy.retry_limit;
                if says(DeadLetter) || says(Hopeless) || exhausted {
                    next = Cursor { committed: at, lease: None, retries: 0 };
                    terminal = Some(at);
                    file = (says(DeadLetter) || policy.dead_letter).then_some(at);
                } else if says(Failed) {
                    next.retries += 1;
                }
            }
            break;
        }
        if says(Completed) {
            next.committed = at;
            if lease.is_some() && at == end {
                next = Cursor { committed: at, lease: None, retries: 0 };
            }
        }
    }
    for (item, verdict) in items.iter().zip(&mut verdicts) {
        verdict.lease_released = verdict.success && lease.is_some() && next.lease.is_none();
        if terminal.is_some_and(|at| item.place == Place::At(at)) {
            verdict.dlq = file.is_some();
            verdict.dropped = file.is_none();
        }
    }
    (next, file, verdicts)
}

fn any_status() -> impl Strategy<Value = Status> {
    prop_oneof![4 => Just(Completed), 1 => Just(Failed), 1 => Just(Hopeless), 1 => Just(Retry), 1 => Just(DeadLetter)]
}

fn any_item() -> impl Strategy<Value = Item> {
    let place = prop_oneof![12 => (-1i64..12).prop_map(Place::At), 1 => Just(Place::Nowhere)];
    (place, any_status()).prop_map(|(place, status)| Item { place, status })
}

/// One step of a history: a pop of some size, time passing, or a call.
#[derive(Clone, Debug)]
enum Step {
    Pop { size: i64, live: bool },
    Ack { id: Option<u128>, items: Vec<Item> },
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1i64..6, prop::bool::weighted(0.8)).prop_map(|(size, live)| Step::Pop { size, live }),
        (
            prop_oneof![2 => Just(Some(W)), 1 => Just(None), 1 => Just(Some(78))],
            proptest::collection::vec(any_item(), 0..6)
        )
            .prop_map(|(id, items)| Step::Ack { id, items }),
    ]
}

proptest! {
    #[test]
    fn random_histories_agree_with_the_plain_implementation(
        steps in proptest::collection::vec(any_step(), 1..30),
        retry_limit in 0i32..4,
        dead_letter in any::<bool>(),
    ) {
        let policy = Policy { retry_limit, dead_letter, conflating: false };
        let mut cursor = Cursor { committed: -1, lease: None, retries: 0 };
        for step in steps {
            match step {
                Step::Pop { size, live } => {
                    cursor.lease = Some(Lease {
                        id: W,
                        batch_end: cursor.committed + size,
                        expires_at: if live { NOW + 1 } else { NOW },
                    });
                }
                Step::Ack { id, items } => {
                    let items: Vec<_> = items.iter().map(|item| match item.place {
                        Place::At(at) => Item { place: Place::At(at + cursor.committed - 2), ..*item },
                        Place::Nowhere => *item,
                    }).collect();
                    let settled = settle(&cursor, id, NOW, &items, &policy);
                    let (expected, file, verdicts) = reference(&cursor, id, &items, &policy);
                    prop_assert_eq!(&settled.cursor, &expected);
                    prop_assert_eq!(settled.file, file);
                    prop_assert_eq!(&settled.verdicts, &verdicts);
                    prop_assert_eq!(settled.changed, settled.cursor != cursor);
                    prop_assert_eq!(settled.charged, expected.retries > cursor.retries);
                    prop_assert_eq!(settled.released, cursor.lease.is_some() && expected.lease.is_none());
                    prop_assert!(settled.cursor.committed >= cursor.committed);
                    prop_assert_eq!(settled.retries_recorded, if file.is_some() { cursor.retries } else { 0 });
                    cursor = settled.cursor;
                }
            }
        }
    }

    #[test]
    fn no_numbers_overflow(
        committed in any::<i64>(), end in any::<i64>(), at in any::<i64>(), now in any::<i64>(),
        retries in any::<i32>(), retry_limit in any::<i32>(), status in any_status(),
    ) {
        let lease = Some(Lease { id: W, batch_end: end, expires_at: i64::MAX });
        let policy = Policy { retry_limit, dead_letter: true, conflating: false };
        let cursor = Cursor { committed, lease, retries };
        let settled = settle(&cursor, Some(W), now, &[Item { place: Place::At(at), status }], &policy);
        prop_assert!(settled.cursor.committed >= committed);
    }
}
