use std::{cell::RefCell, io, rc::Rc};

use wasmkeep_protocol::{
    ActorId,
    alarm::{Entry, Wake},
};

use super::{Book, Journal, Schedule};

fn id(name: &str) -> ActorId {
    ActorId { class: "c".parse().unwrap(), name: name.parse().unwrap() }
}

fn at(at_ms: u64) -> Wake {
    Wake { at_ms, is_retry: false }
}

fn retry(at_ms: u64) -> Wake {
    Wake { at_ms, is_retry: true }
}

type Line = (String, Option<u64>);

/// Writes down what it is told, and can be full.
#[derive(Clone, Default)]
struct Paper {
    lines: Rc<RefCell<Vec<Line>>>,
    is_full: Rc<RefCell<bool>>,
}

impl Journal for Paper {
    fn add(&mut self, entry: &Entry, _: &Schedule) -> io::Result<()> {
        if *self.is_full.borrow() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let line = (entry.id.name.to_string(), entry.wake.map(|wake| wake.at_ms));
        self.lines.borrow_mut().push(line);
        Ok(())
    }
}

impl Paper {
    fn take(&self) -> Vec<Line> {
        std::mem::take(&mut self.lines.borrow_mut())
    }
}

fn line(name: &str, at_ms: impl Into<Option<u64>>) -> Line {
    (name.to_owned(), at_ms.into())
}

/// All that are due by then, in order.
fn due(book: &Book, now_ms: u64) -> Vec<String> {
    std::iter::from_fn(|| book.schedule().take_due(now_ms)).map(|id| id.name.to_string()).collect()
}

#[test]
fn the_index_hears_of_an_earlier_time_before_the_database_and_of_a_later_one_after_it() {
    // case A1
    let paper = Paper::default();
    let book = Book::new(paper.clone(), []);
    book.announce(&id("a"), at(50)).unwrap();
    assert_eq!(paper.take(), [line("a", 50)], "the first time");
    book.announce(&id("a"), at(90)).unwrap();
    assert_eq!(paper.take(), [], "later: not before the database has it");
    book.settled(&id("a"), Some(at(90))).unwrap();
    assert_eq!(paper.take(), [line("a", 90)]);
    book.announce(&id("a"), at(70)).unwrap();
    assert_eq!(paper.take(), [line("a", 70)], "earlier: at once");
    // Rolled back.
    book.settled(&id("a"), Some(at(90))).unwrap();
    assert_eq!(paper.take(), [line("a", 90)]);
    book.settled(&id("a"), Some(at(90))).unwrap();
    assert_eq!(paper.take(), [], "nothing new");
    book.settled(&id("a"), None).unwrap();
    assert_eq!(paper.take(), [line("a", None)]);
    assert!(book.is_empty());
}

#[test]
fn an_index_that_cannot_be_written_refuses_what_is_earlier_and_stays_early_for_what_is_later() {
    // case A1
    let paper = Paper::default();
    let book = Book::new(paper.clone(), [(id("a"), at(50))]);
    *paper.is_full.borrow_mut() = true;
    assert!(book.announce(&id("a"), at(10)).is_err());
    assert!(book.announce(&id("b"), at(10)).is_err());
    assert!(book.settled(&id("a"), Some(at(90))).is_err());
    assert_eq!(due(&book, 80), [] as [String; 0], "this process knows better than its index");
    *paper.is_full.borrow_mut() = false;
    book.announce(&id("a"), at(60)).unwrap();
    assert_eq!(paper.take(), [], "the index says 50 still");
    book.settled(&id("a"), Some(at(60))).unwrap();
    assert_eq!(paper.take(), [line("a", 60)]);
}

#[test]
fn what_is_due_is_taken_once_and_in_order() {
    let book = Book::new((), [(id("late"), at(30)), (id("early"), at(10)), (id("mid"), at(20))]);
    assert_eq!(due(&book, 9), [] as [String; 0]);
    assert_eq!(due(&book, 20), ["early", "mid"]);
    assert_eq!(due(&book, 30), ["late"], "those on the way are not taken again");
    book.settled(&id("early"), Some(at(40))).unwrap();
    assert_eq!(due(&book, 99), [] as [String; 0], "on the way until its event has ended");
    book.schedule().ended(&id("early"));
    book.settled(&id("mid"), None).unwrap();
    book.schedule().ended(&id("mid"));
    assert_eq!(book.schedule().next_ms(), Some(40));
    assert_eq!(book.len(), 2);
}

#[test]
fn an_event_that_was_not_taken_is_sent_again_after_longer_and_longer_waits() {
    let book = Book::new((), [(id("a"), at(0))]);
    let mut now_ms = 0;
    for wait_ms in [1_000, 2_000, 4_000] {
        assert_eq!(due(&book, now_ms), ["a"]);
        book.schedule().refused(&id("a"), now_ms);
        now_ms += wait_ms;
        assert_eq!(due(&book, now_ms - 1), [] as [String; 0]);
    }
    assert_eq!(due(&book, now_ms), ["a"]);
    book.schedule().ended(&id("a"));
    assert_eq!(due(&book, now_ms), ["a"], "an end makes it forget");
    book.schedule().put_off(&id("a"), now_ms);
    assert_eq!(book.schedule().next_ms(), Some(now_ms + 300_000));
}

/// Takes an alarm that is set to "now" each time, for as long as `until_ms`; when each was taken.
fn restless(book: &Book, from_ms: u64, until_ms: u64) -> Vec<u64> {
    let mut taken = Vec::new();
    for now_ms in from_ms..until_ms {
        // The node could take three in a millisecond.
        for _ in 0..3 {
            if due(book, now_ms).is_empty() {
                break;
            }
            taken.push(now_ms);
            book.settled(&id("a"), Some(at(now_ms))).unwrap();
            book.schedule().ended(&id("a"));
        }
    }
    taken
}

#[test]
fn an_alarm_set_to_now_for_ever_runs_a_hundred_times_and_then_fifty_times_a_second() {
    // R-ALM-1
    let start = 1_000_000;
    let book = Book::new((), [(id("a"), at(0))]);
    let taken = restless(&book, start, start + 10_000);
    assert!(taken[99] < start + 40, "the first hundred as fast as can be: {taken:?}");
    assert_eq!(taken.len(), 100 + 9_999 / 20);
    let pauses: Vec<u64> = taken[110..].windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.iter().all(|pause| *pause == 20), "{pauses:?}");
    // Whoever waits an interval between two is never put off.
    for interval_ms in [20, 1_000] {
        let book = Book::new((), [(id("a"), at(start))]);
        for n in 0..500 {
            let now_ms = start + n * interval_ms;
            assert_eq!(book.schedule().next_ms(), Some(now_ms), "every {interval_ms} ms");
            assert_eq!(due(&book, now_ms), ["a"]);
            book.settled(&id("a"), Some(at(now_ms + interval_ms))).unwrap();
            book.schedule().ended(&id("a"));
        }
    }
    // What was not used is there again.
    let rested = start + 60_000;
    book.settled(&id("a"), Some(at(rested))).unwrap();
    let again = restless(&book, rested, rested + 30);
    assert_eq!(again.len(), 3 * 30, "{again:?}");
    // Others are not concerned, and a clock set back makes no wait of hours.
    book.settled(&id("b"), Some(at(0))).unwrap();
    assert_eq!(book.schedule().next_ms(), Some(0));
    book.settled(&id("b"), None).unwrap();
    let _ = restless(&book, rested + 30, rested + 100);
    book.settled(&id("a"), Some(at(0))).unwrap();
    book.schedule().clock_was_set_back(start);
    assert_eq!(due(&book, start), ["a"]);
}

#[test]
fn a_clock_set_back_does_not_make_short_waits_long() {
    let hour = 3_600_000;
    let known = [(id("alarm"), at(hour)), (id("retry"), retry(hour)), (id("soon"), retry(299_999))];
    let book = Book::new((), known);
    book.schedule().clock_was_set_back(0);
    assert_eq!(due(&book, 0), ["retry"], "an alarm is for the time it was set to");
}

#[test]
fn a_new_index_can_take_over_what_the_old_one_says() {
    let book = Book::new((), [(id("b"), at(2)), (id("a"), at(1)), (id("c"), retry(3))]);
    let schedule = book.schedule();
    let all: Vec<_> = schedule.behind(None).map(|(id, wake)| (id.name.to_string(), wake)).collect();
    assert_eq!(all, [("a".to_owned(), at(1)), ("b".to_owned(), at(2)), ("c".to_owned(), retry(3))]);
    let rest: Vec<_> = schedule.behind(Some(&id("b"))).map(|(id, _)| id.name.to_string()).collect();
    assert_eq!(rest, ["c"]);
}
