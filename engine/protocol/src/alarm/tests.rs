use proptest::prelude::*;

use super::*;
use crate::ActorId;

/// Ten in the morning, say.
const NOW: u64 = 1_700_000_000_000;

fn pending(due_ms: u64) -> Alarm {
    Alarm { pending_ms: Some(due_ms), attempt: None }
}

fn attempt(due_ms: u64, number: u32, retry_ms: u64) -> Option<Attempt> {
    Some(Attempt { due_ms, number, retry_ms })
}

#[test]
fn an_attempt_is_written_down_before_it_is_made_and_gone_when_it_succeeded() {
    // R-ALM-1
    let mut alarm = pending(NOW);
    assert_eq!(alarm.begin(NOW - 1), None, "never before its time");
    assert_eq!(alarm, pending(NOW));
    assert_eq!(alarm.begin(NOW + 7), attempt(NOW, 1, NOW + 1_007));
    assert_eq!(alarm, Alarm { pending_ms: None, attempt: attempt(NOW, 1, NOW + 1_007) });
    alarm.succeeded();
    assert_eq!(alarm, Alarm::default());
    assert_eq!((alarm.wake(), alarm.begin(NOW)), (None, None));
}

#[test]
fn waits_between_attempts_grow_to_five_minutes() {
    // R-ALM-1
    let seconds = |number| pause_after(number).as_secs();
    assert_eq!((1..=11).map(seconds).collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    assert_eq!(seconds(u32::MAX), 300);
    let (mut alarm, mut now) = (pending(NOW), NOW);
    for number in 1..=12 {
        let begun = alarm.begin(now).unwrap();
        assert_eq!((begun.due_ms, begun.number), (NOW, number));
        now += 500;
        alarm.failed(now);
        let wake = alarm.wake().unwrap();
        assert_eq!(wake, Wake { at_ms: now + millis(pause_after(number)), is_retry: true });
        assert!(!wake.is_due(wake.at_ms - 1));
        assert_eq!(alarm.begin(wake.at_ms - 1), None);
        now = wake.at_ms;
    }
}

#[test]
fn a_death_during_an_attempt_counts_as_its_failure() {
    let mut alarm = pending(NOW);
    assert_eq!(alarm.begin(NOW).unwrap().number, 1);
    let mut after_restart: Alarm = alarm.to_string().parse().unwrap();
    assert_eq!(after_restart.begin(NOW + 999), None);
    assert_eq!(after_restart.begin(NOW + 1_000), attempt(NOW, 2, NOW + 3_000));
}

#[test]
fn what_a_failing_attempt_set_is_kept_behind_its_retry() {
    // case A4
    let mut alarm = pending(NOW);
    assert!(alarm.begin(NOW).is_some());
    alarm.set(NOW + 3_600_000, During::Attempt);
    assert_eq!(alarm.get(During::Attempt), Some(NOW + 3_600_000));
    alarm.failed(NOW + 10);
    assert_eq!(alarm.wake(), Some(Wake { at_ms: NOW + 1_010, is_retry: true }));
    assert_eq!(alarm.get(During::Other), Some(NOW), "the one that failed is pending");
    assert_eq!(alarm.begin(NOW + 1_010).unwrap().number, 2);
    alarm.succeeded();
    assert_eq!(alarm, pending(NOW + 3_600_000));
}

#[test]
fn any_other_event_replaces_or_clears_a_failed_attempt() {
    let failed = Alarm { pending_ms: Some(5), attempt: attempt(1, 3, 9) };
    for (during, set, cleared) in [
        (During::Other, pending(7), Alarm::default()),
        (During::Attempt, Alarm { pending_ms: Some(7), ..failed }, Alarm { pending_ms: None, ..failed }),
    ] {
        let mut alarm = failed;
        alarm.set(7, during);
        assert_eq!(alarm, set, "{during:?}");
        let mut alarm = failed;
        alarm.clear(during);
        assert_eq!(alarm, cleared, "{during:?}");
    }
}

#[test]
fn a_clock_set_back_delays_an_alarm_and_not_a_retry() {
    let hour = 3_600_000;
    let (alarm, retry) = (pending(NOW), Alarm { pending_ms: None, attempt: attempt(NOW, 1, NOW + 1_000) });
    for (mut alarm, now, begins) in [
        (alarm, NOW - hour, false),
        (alarm, NOW + hour, true),
        (retry, NOW + 999, false),
        (retry, NOW + hour, true),
        // Back by an hour: nobody wrote down a wait of an hour.
        (retry, NOW - hour, true),
        // Back by less than the longest wait: it cannot be told from a long wait.
        (retry, NOW - 60_000, false),
    ] {
        assert_eq!(alarm.begin(now).is_some(), begins, "{alarm:?} at {now}");
    }
}

#[test]
fn times_at_the_end_of_what_can_be_kept_do_not_overflow() {
    let mut alarm = pending(DUE_MS_MAX);
    assert_eq!(alarm.begin(DUE_MS_MAX - 1), None);
    assert!(alarm.begin(u64::MAX).is_some());
    alarm.failed(u64::MAX);
    assert_eq!(alarm.attempt.unwrap().retry_ms, u64::MAX);
}

#[test]
fn what_is_no_alarm_is_not_read_as_one() {
    for text in ["", "-", "- - -", "- - - - -", "1 2 - -", "x - - -", "-1 - - -", "1  - - -"] {
        assert_eq!(text.parse::<Alarm>(), Err(Unreadable), "{text:?}");
    }
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let id = ("[a-z][a-z0-9-]{0,63}", "[^\\p{Cc}]{1,40}").prop_filter_map("a name", |(class, name)| {
        Some(ActorId { class: class.parse().ok()?, name: name.parse().ok()? })
    });
    let wake = proptest::option::of((any::<u64>(), any::<bool>()));
    let entry = (id, wake)
        .prop_map(|(id, wake)| Entry { id, wake: wake.map(|(at_ms, is_retry)| Wake { at_ms, is_retry }) });
    proptest::collection::vec(entry, 0..20)
}

proptest! {
    #[test]
    fn an_alarm_is_read_as_it_was_written(
        pending_ms: Option<u64>,
        attempt: Option<(u64, u32, u64)>,
    ) {
        let attempt = attempt.map(|(due_ms, number, retry_ms)| Attempt { due_ms, number, retry_ms });
        let alarm = Alarm { pending_ms, attempt };
        prop_assert_eq!(alarm.to_string().parse(), Ok(alarm));
    }

    #[test]
    fn an_index_is_read_as_it_was_written_up_to_where_it_is_damaged(
        entries in entries(),
        at: prop::sample::Index,
        flip in 1..=255_u8,
    ) {
        let (mut bytes, mut ends) = (Vec::new(), vec![0]);
        for entry in &entries {
            entry.write(&mut bytes);
            ends.push(bytes.len());
        }
        prop_assert_eq!(read_index(&bytes).collect::<Result<Vec<_>, _>>(), Ok(entries.clone()));
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            let whole = ends.iter().filter(|end| **end <= at).count() - 1;
            // Cut there: what came before is read, and that something is missing is seen.
            let read: Vec<_> = read_index(&bytes[..at]).collect();
            prop_assert_eq!(&read.iter().filter_map(|entry| entry.clone().ok()).collect::<Vec<_>>(), &entries[..whole]);
            prop_assert_eq!(read.len() > whole, !ends.contains(&at));
            // One byte changed.
            bytes[at] ^= flip;
            let read: Vec<_> = read_index(&bytes).collect();
            prop_assert_eq!(&read[..whole], &entries[..whole].iter().cloned().map(Ok).collect::<Vec<_>>()[..]);
            prop_assert_eq!(read.last(), Some(&Err(Damaged { at: ends[whole] })));
        }
    }
}
