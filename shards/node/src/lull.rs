//! What a shard does when the one connection it serves has nothing for it at this moment: it gives its core to whoever
//! waits for it, and looks again, before it goes to sleep. To sleep and be woken takes the executor a dozen system calls,
//! and whoever is to answer may share the core, or be quick.
//!
//! Owns when that pays. Whoever waits says what it looks for.

use std::{
    cell::Cell,
    task::Poll,
    thread,
    time::{Duration, Instant},
};

use crate::tcp::may_look;

/// How long a shard looks: about what it takes the executor to go to sleep and an idle core to wake.
const LOOK_FOR: Duration = Duration::from_micros(100);

/// Answers in a row on one connection after which a shard counts as serving that one only. What came on others is not
/// seen while it looks.
const ALONE_AFTER: u8 = 8;

/// Lulls that are passed over after several in vain: up to two to this power. A yield may cost milliseconds where another
/// process wants the core for itself; so few of them are not seen in a 99th percentile.
const MISSES_MAX: u8 = 10;

thread_local! {
    static NEXT: Cell<u64> = const { Cell::new(1) };
    /// The connection answered on last, and how often in a row.
    static LAST: Cell<(u64, u8)> = const { Cell::new((0, 0)) };
}

/// Whether a shard serves one connection only.
pub(crate) fn is_alone() -> bool {
    LAST.get().1 >= ALONE_AFTER
}

/// The lulls of one connection.
pub(crate) struct Lulls {
    id: u64,
    /// Looks in vain, one after the other.
    misses: u8,
    /// Lulls to pass over.
    pass_over: u16,
}

impl Default for Lulls {
    fn default() -> Self {
        Self { id: NEXT.replace(NEXT.get() + 1), misses: 0, pass_over: 0 }
    }
}

impl Lulls {
    /// A request on this connection was answered.
    pub(crate) fn answered(&self) {
        let (last, times) = LAST.get();
        LAST.set((self.id, if last == self.id { times.saturating_add(1) } else { 0 }));
    }

    /// Looks until something is found or the time is over.
    pub(crate) fn look<T>(&mut self, mut found: impl FnMut() -> Poll<T>) -> Poll<T> {
        if !is_alone() || !may_look() {
            return Poll::Pending;
        }
        if self.pass_over > 0 {
            self.pass_over -= 1;
            return Poll::Pending;
        }
        let began = Instant::now();
        while began.elapsed() < LOOK_FOR {
            thread::yield_now();
            let found = found();
            if found.is_ready() {
                self.end(began.elapsed() < LOOK_FOR);
                return found;
            }
        }
        self.end(false);
        Poll::Pending
    }

    /// `paid`: what was looked for came before a sleeper would have had it.
    fn end(&mut self, paid: bool) {
        self.misses = if paid { 0 } else { (self.misses + 1).min(MISSES_MAX) };
        self.pass_over = if paid { 0 } else { 1 << self.misses };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks for what never comes; says whether it looked.
    fn looks(lulls: &mut Lulls) -> bool {
        let mut looked = false;
        let nothing = lulls.look(|| {
            looked = true;
            Poll::<()>::Pending
        });
        assert!(nothing.is_pending());
        looked
    }

    #[test]
    fn a_shard_looks_again_while_it_serves_one_connection_only() {
        let (mut one, other) = (Lulls::default(), Lulls::default());
        for _ in 0..ALONE_AFTER {
            one.answered();
            assert!(!looks(&mut one));
        }
        one.answered();
        assert_eq!(one.look(|| Poll::Ready(7)), Poll::Ready(7));
        other.answered();
        assert!(!looks(&mut Lulls::default()));
    }

    #[test]
    fn after_looks_in_vain_it_looks_ever_less_often_and_again_after_a_find() {
        let mut lulls = Lulls::default();
        (0..=ALONE_AFTER).for_each(|_| lulls.answered());
        for passed_over in [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024] {
            assert!(looks(&mut lulls));
            assert_eq!((0..passed_over).find(|_| looks(&mut lulls)), None, "{passed_over}");
        }
        lulls.end(true);
        assert!(looks(&mut lulls));
    }

    #[test]
    fn a_find_that_took_longer_than_a_sleep_counts_as_none() {
        let mut lulls = Lulls::default();
        (0..=ALONE_AFTER).for_each(|_| lulls.answered());
        let late = || {
            thread::sleep(LOOK_FOR);
            Poll::Ready(7)
        };
        assert_eq!(lulls.look(late), Poll::Ready(7));
        assert!(!looks(&mut lulls));
    }
}
