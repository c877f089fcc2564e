//! The rules of acknowledgement, one by one; each test is named after its rule.

use super::Status::{Completed, DeadLetter, Failed, Hopeless, Retry};
use super::*;

const NOW: i64 = 1_000;
const W: u128 = 77;
const POLICY: Policy = Policy { retry_limit: 3, dead_letter: true, conflating: false };
const DROPPING: Policy = Policy { retry_limit: 3, dead_letter: false, conflating: false };

/// Cursor at 0, messages 1 to 3 leased, R as given.
fn leased(retries: i32) -> Cursor {
    let lease = Lease { id: W, batch_end: 3, expires_at: NOW + 1 };
    Cursor { committed: 0, lease: Some(lease), retries }
}

fn expired(retries: i32) -> Cursor {
    let lease = Lease { id: W, batch_end: 3, expires_at: NOW };
    Cursor { committed: 0, lease: Some(lease), retries }
}

fn free(retries: i32) -> Cursor {
    Cursor { committed: 0, lease: None, retries }
}

fn item(offset: i64, status: Status) -> Item {
    Item { place: Place::At(offset), status }
}

fn ack(cursor: &Cursor, lease_id: Option<u128>, items: &[(i64, Status)], policy: Policy) -> Settled {
    let items: Vec<_> = items.iter().map(|(offset, status)| item(*offset, *status)).collect();
    settle(cursor, lease_id, NOW, &items, &policy)
}

fn errors(settled: &Settled) -> Vec<Option<&'static str>> {
    settled.verdicts.iter().map(|v| v.error).collect()
}

fn all_succeed(settled: &Settled) -> bool {
    settled.verdicts.iter().all(|v| v.success && v.error.is_none())
}

#[test]
fn status_words_are_exact_and_case_sensitive() {
    for word in [None, Some("completed"), Some("success"), Some("acked"), Some("ok")] {
        assert_eq!(Status::parse(word), Completed);
    }
    assert_eq!(Status::parse(Some("retry")), Retry);
    assert_eq!(Status::parse(Some("dlq")), DeadLetter);
    for word in ["failed", "", "Completed", "OK", "nack", "error", "DLQ", " ok"] {
        assert_eq!(Status::parse(Some(word)), Failed, "{word:?}");
    }
}

#[test]
fn a_lease_id_that_is_not_the_live_one_moves_nothing() {
    let items = [(1, Completed), (0, Completed), (2, Failed)];
    for (cursor, id) in [(leased(1), 78), (expired(1), W), (free(1), W)] {
        let settled = ack(&cursor, Some(id), &items, POLICY);
        assert_eq!(errors(&settled), [Some(INVALID_LEASE); 3]);
        assert_eq!(settled.cursor, cursor);
        assert!(!settled.changed && !settled.released && settled.file.is_none());
        assert!(settled.verdicts.iter().all(|v| !v.success && !v.lease_released && !v.noop));
    }
}

#[test]
fn a_lease_is_dead_from_the_moment_of_its_expiry_on() {
    let mut cursor = leased(0);
    assert!(all_succeed(&ack(&cursor, Some(W), &[(1, Completed)], POLICY)));
    if let Some(lease) = &mut cursor.lease {
        lease.expires_at = NOW;
    }
    assert_eq!(errors(&ack(&cursor, Some(W), &[(1, Completed)], POLICY)), [Some(INVALID_LEASE)]);
}

#[test]
fn completing_the_last_message_completes_those_below_it_and_ends_the_lease() {
    let settled = ack(&leased(2), Some(W), &[(3, Completed)], POLICY);
    assert_eq!(settled.cursor, Cursor { committed: 3, lease: None, retries: 0 });
    assert!(settled.released && settled.reset_attempts && settled.changed);
    assert!(settled.verdicts[0].lease_released);
}

#[test]
fn a_partial_completion_keeps_the_lease_and_the_budget() {
    let settled = ack(&leased(2), Some(W), &[(2, Completed), (1, Completed)], POLICY);
    assert_eq!(settled.cursor, Cursor { committed: 2, ..leased(2) });
    assert!(!settled.released && !settled.reset_attempts && settled.changed);
    assert!(settled.verdicts.iter().all(|v| v.success && !v.lease_released));
}

#[test]
fn a_completed_message_completed_again_is_a_noop() {
    let settled = ack(&leased(0), Some(W), &[(0, Completed)], POLICY);
    assert!(settled.verdicts[0].success && settled.verdicts[0].noop && !settled.changed);
    let settled = ack(&free(0), None, &[(-1, Completed)], POLICY);
    assert!(settled.verdicts[0].noop);
}

#[test]
fn a_failure_at_or_below_the_cursor_is_already_committed() {
    for status in [Failed, Retry, DeadLetter] {
        for (cursor, id) in [(leased(0), Some(W)), (leased(0), None), (free(0), None)] {
            let settled = ack(&cursor, id, &[(0, status)], POLICY);
            assert_eq!(errors(&settled), [Some(ALREADY_COMMITTED)]);
            assert!(!settled.changed);
        }
    }
}

#[test]
fn a_message_found_nowhere_or_outside_the_lease_is_unresolvable() {
    let nowhere = Item { place: Place::Nowhere, status: Completed };
    let settled = settle(&leased(0), Some(W), NOW, &[nowhere, item(4, Completed)], &POLICY);
    assert_eq!(errors(&settled), [Some(UNRESOLVABLE); 2]);
    assert!(!settled.changed && !settled.verdicts[0].lease_released);
    let failed = Item { place: Place::Nowhere, status: Failed };
    let settled = settle(&leased(0), Some(W), NOW, &[failed, item(1, Completed)], &POLICY);
    assert_eq!(errors(&settled), [Some(UNRESOLVABLE), None]);
    assert_eq!(settled.cursor.committed, 1);
}

#[test]
fn a_failure_below_completions_commits_nothing_above_it() {
    let items = [(1, Failed), (2, Completed), (3, Completed)];
    let settled = ack(&leased(0), Some(W), &items, POLICY);
    assert_eq!(settled.cursor, free(1));
    assert!(all_succeed(&settled) && settled.released && !settled.reset_attempts);
}

#[test]
fn a_failure_commits_the_completed_prefix_and_charges_one() {
    let items = [(3, Completed), (2, Failed), (1, Completed)];
    let settled = ack(&leased(1), Some(W), &items, POLICY);
    assert_eq!(settled.cursor, Cursor { committed: 1, lease: None, retries: 2 });
    assert!(settled.verdicts.iter().all(|v| v.lease_released && !v.dlq && !v.dropped));
}

#[test]
fn the_fourth_failure_of_three_is_terminal_and_records_three() {
    let mut retries = 0;
    for _ in 0..3 {
        let settled = ack(&leased(retries), Some(W), &[(1, Failed)], POLICY);
        assert_eq!((settled.file, settled.cursor.committed), (None, 0));
        retries = settled.cursor.retries;
    }
    let settled = ack(&leased(retries), Some(W), &[(1, Failed)], POLICY);
    assert_eq!(settled.file, Some(1));
    assert_eq!(settled.retries_recorded, 3);
    assert_eq!(settled.cursor, Cursor { committed: 1, lease: None, retries: 0 });
    assert!(settled.reset_attempts && settled.verdicts[0].dlq && !settled.verdicts[0].dropped);
}

#[test]
fn a_limit_of_zero_makes_the_first_failure_terminal() {
    let policy = Policy { retry_limit: 0, ..POLICY };
    let settled = ack(&leased(0), Some(W), &[(1, Failed)], policy);
    assert_eq!((settled.file, settled.retries_recorded), (Some(1), 0));
}

#[test]
fn with_dead_lettering_off_an_exhausted_message_is_dropped() {
    let items = [(1, Completed), (2, Failed), (3, Completed)];
    let settled = ack(&leased(3), Some(W), &items, DROPPING);
    assert_eq!(settled.file, None);
    assert_eq!(settled.cursor, Cursor { committed: 2, lease: None, retries: 0 });
    let dropped: Vec<_> = settled.verdicts.iter().map(|v| v.dropped).collect();
    assert_eq!(dropped, [false, true, false]);
    assert!(settled.verdicts.iter().all(|v| v.success && v.lease_released && !v.dlq));
    assert!(settled.reset_attempts);
}

#[test]
fn a_forced_dlq_files_even_with_dead_lettering_off_and_budget_left() {
    let settled = ack(&leased(1), Some(W), &[(2, DeadLetter)], DROPPING);
    assert_eq!((settled.file, settled.retries_recorded), (Some(2), 1));
    // Message 1 was not mentioned and is implicitly done.
    assert_eq!(settled.cursor, Cursor { committed: 2, lease: None, retries: 0 });
}

#[test]
fn a_hopeless_failure_is_final_whatever_budget_is_left() {
    let settled = ack(&leased(0), Some(W), &[(1, Completed), (2, Hopeless), (3, Completed)], POLICY);
    assert_eq!((settled.file, settled.retries_recorded, settled.charged), (Some(2), 0, false));
    assert_eq!(settled.cursor, Cursor { committed: 2, lease: None, retries: 0 });
    assert_eq!(settled.verdicts.iter().map(|v| v.dlq).collect::<Vec<_>>(), [false, true, false]);
    // It is a failure, no order to file: without dead-lettering it is dropped.
    let settled = ack(&leased(0), Some(W), &[(2, Hopeless)], DROPPING);
    assert_eq!((settled.file, settled.verdicts[0].dropped), (None, true));
    // Beside others on one offset it beats a failure, and yields to the order.
    assert_eq!(ack(&leased(0), Some(W), &[(1, Failed), (1, Hopeless)], POLICY).file, Some(1));
    assert_eq!(ack(&leased(0), Some(W), &[(1, Hopeless), (1, DeadLetter)], DROPPING).file, Some(1));
    // And it has no more rights than a failure has.
    assert_eq!(errors(&ack(&leased(0), None, &[(1, Hopeless)], POLICY)), [Some(INVALID_LEASE)]);
}

#[test]
fn only_a_failure_with_budget_left_is_charged() {
    for (status, retries, charged) in [(Failed, 0, true), (Failed, 3, false), (Retry, 0, false), (Completed, 2, false)]
    {
        assert_eq!(ack(&leased(retries), Some(W), &[(3, status)], POLICY).charged, charged, "{status:?} {retries}");
    }
}

#[test]
fn retry_never_charges() {
    for retries in 0..10 {
        let settled = ack(&leased(retries), Some(W), &[(1, Completed), (2, Retry)], POLICY);
        assert_eq!(settled.cursor, Cursor { committed: 1, lease: None, retries });
        assert!(settled.released && settled.file.is_none() && !settled.reset_attempts);
    }
}

#[test]
fn the_lowest_failure_decides_and_higher_ones_only_redeliver() {
    let settled = ack(&leased(3), Some(W), &[(3, DeadLetter), (1, Retry), (2, Failed)], POLICY);
    assert_eq!(settled.cursor, free(3));
    assert!(all_succeed(&settled) && settled.verdicts.iter().all(|v| !v.dlq));
}

#[test]
fn on_one_offset_dlq_beats_failed_beats_retry_beats_completed() {
    let settled = ack(&leased(0), Some(W), &[(1, Retry), (1, Failed), (1, DeadLetter)], POLICY);
    assert_eq!(settled.file, Some(1));
    let settled = ack(&leased(0), Some(W), &[(1, Retry), (1, Failed)], POLICY);
    assert_eq!(settled.cursor.retries, 1);
    let settled = ack(&leased(0), Some(W), &[(1, Completed), (1, Retry)], POLICY);
    assert_eq!(settled.cursor, free(0));
}

#[test]
fn items_with_one_id_share_its_flags() {
    let items = [(1, Failed), (1, Failed), (1, Completed), (2, Completed)];
    let settled = ack(&leased(3), Some(W), &items, POLICY);
    let dlq: Vec<_> = settled.verdicts.iter().map(|v| v.dlq).collect();
    assert_eq!(dlq, [true, true, true, false]);
}

#[test]
fn without_lease_id_a_completion_moves_the_cursor_under_a_live_lease() {
    let settled = ack(&leased(2), None, &[(2, Completed)], POLICY);
    assert_eq!(settled.cursor, Cursor { committed: 2, ..leased(2) });
    assert!(all_succeed(&settled) && !settled.released);
    let settled = ack(&leased(2), None, &[(4, Completed)], POLICY);
    assert_eq!(errors(&settled), [Some(UNRESOLVABLE)]);
}

#[test]
fn whoever_completes_the_end_of_a_lease_ends_it_and_resets_the_budget() {
    for (cursor, id) in [(leased(2), None), (leased(2), Some(W)), (expired(2), None)] {
        let settled = ack(&cursor, id, &[(3, Completed)], POLICY);
        assert_eq!(settled.cursor, Cursor { committed: 3, lease: None, retries: 0 });
        assert!(settled.released && settled.reset_attempts && settled.verdicts[0].lease_released);
    }
}

#[test]
fn without_lease_id_a_failure_never_touches_a_live_lease() {
    for status in [Failed, Retry, DeadLetter] {
        let items = [(1, Completed), (2, status), (3, Completed)];
        let settled = ack(&leased(3), None, &items, POLICY);
        assert_eq!(errors(&settled), [None, Some(INVALID_LEASE), None]);
        // The prefix moves, and the failure is not skipped by the success above it.
        assert_eq!(settled.cursor, Cursor { committed: 1, ..leased(3) });
        assert!(!settled.released && settled.file.is_none() && !settled.reset_attempts);
    }
}

#[test]
fn without_lease_id_an_expired_lease_is_settled_as_by_its_holder() {
    let settled = ack(&expired(3), None, &[(1, Completed), (2, Failed)], POLICY);
    assert_eq!(settled.file, Some(2));
    assert_eq!(settled.cursor, Cursor { committed: 2, lease: None, retries: 0 });
    let settled = ack(&expired(0), None, &[(1, Failed)], POLICY);
    assert_eq!(settled.cursor, free(1));
    let settled = ack(&expired(0), None, &[(1, Completed)], POLICY);
    assert_eq!(settled.cursor, Cursor { committed: 1, ..expired(0) });
}

#[test]
fn with_no_lease_at_all_a_completion_moves_to_any_stored_offset() {
    let settled = ack(&free(1), None, &[(500, Completed)], POLICY);
    assert_eq!(settled.cursor, Cursor { committed: 500, lease: None, retries: 1 });
    assert!(!settled.released && !settled.verdicts[0].lease_released);
}

#[test]
fn with_no_lease_at_all_a_failure_has_no_effect() {
    let items = [(4, Completed), (5, Failed), (6, Completed)];
    let settled = ack(&free(1), None, &items, POLICY);
    assert_eq!(errors(&settled), [None, Some(NO_LEASED_BATCH), None]);
    assert_eq!(settled.cursor, Cursor { committed: 4, lease: None, retries: 1 });
}

#[test]
fn no_items_change_nothing() {
    assert!(!ack(&leased(1), Some(W), &[], POLICY).changed);
    let mut empty = leased(1);
    empty.committed = 3;
    assert!(!ack(&empty, Some(W), &[], POLICY).changed);
}

const CONFLATING: Policy = Policy { conflating: true, ..POLICY };

fn conflated(settled: &Settled) -> Vec<Option<i64>> {
    settled.verdicts.iter().map(|v| v.conflated).collect()
}

#[test]
fn the_item_that_settles_a_conflating_lease_says_how_many_it_superseded() {
    assert_eq!(conflated(&ack(&leased(0), Some(W), &[(3, Completed)], CONFLATING)), [Some(2)]);
    assert_eq!(conflated(&ack(&leased(0), Some(W), &[(3, DeadLetter)], CONFLATING)), [Some(2)]);
    assert_eq!(conflated(&ack(&leased(3), Some(W), &[(3, Failed)], CONFLATING)), [Some(2)], "given up");
    assert_eq!(conflated(&ack(&leased(0), None, &[(3, Completed)], CONFLATING)), [Some(2)]);
    let all = [(1, Completed), (2, Completed), (3, Completed), (0, Completed)];
    assert_eq!(conflated(&ack(&leased(0), Some(W), &all, CONFLATING)), [None, None, Some(2), None]);
    let partly = Cursor { committed: 2, ..leased(0) };
    assert_eq!(conflated(&ack(&partly, Some(W), &[(3, Completed)], CONFLATING)), [Some(0)], "none left to supersede");
}

#[test]
fn what_does_not_settle_the_lease_supersedes_nothing() {
    for items in [[(3, Failed)], [(3, Retry)], [(2, Completed)], [(2, DeadLetter)]] {
        assert_eq!(conflated(&ack(&leased(0), Some(W), &items, CONFLATING)), [None], "{items:?}");
    }
    assert_eq!(conflated(&ack(&leased(0), Some(W), &[(2, Failed), (3, Completed)], CONFLATING)), [None, None]);
    assert_eq!(conflated(&ack(&leased(0), Some(W + 1), &[(3, Completed)], CONFLATING)), [None]);
    assert_eq!(conflated(&ack(&free(0), None, &[(3, Completed)], CONFLATING)), [None]);
    assert_eq!(conflated(&ack(&leased(0), Some(W), &[(3, Completed)], POLICY)), [None], "another group");
}
