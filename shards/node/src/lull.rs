//! What a shard does when the one connection it serves has nothing for it at this moment: it gives its core to whoever
//! waits for it, and looks again, before it goes to sleep. To sleep and be woken takes the executor a dozen system calls,
//! and whoever is to answer may share the core, or be quick.
//!
//! Owns when that pays, and whether a shard serves one connection only. Whoever waits says what it looks for.

use std::{
    cell::Cell,
    pin::Pin,
    task::{Context, Poll, ready},
    thread,
    time::{Duration, Instant},
};

use crate::tcp::{Turn, may_look};

/// How long a shard looks. An answer that took a sleep or two on its way comes within it; were it shorter, shards that
/// once slept would find each other's answers too late and go on sleeping.
const LOOK_FOR: Duration = Duration::from_micros(300);

/// How long it looks at a stretch. What came on other connections is not seen meanwhile.
const STRETCH: Duration = Duration::from_micros(100);

/// Answers in a row on one connection after which a shard counts as serving that one only.
const ALONE_AFTER: u8 = 8;

/// Lulls that are passed over after several in vain: up to two to this power. A yield may cost milliseconds where another
/// process wants the core for itself; so few of them are not seen in a 99th percentile.
const MISSES_MAX: u8 = 10;

/// In place of a connection: the one that was served last has left the shard.
const NOBODY: u64 = 0;

thread_local! {
    static NEXT: Cell<u64> = const { Cell::new(NOBODY + 1) };
    /// The connection answered on last, and how often in a row.
    static LAST: Cell<(u64, u8)> = const { Cell::new((NOBODY, 0)) };
}

/// Whether a shard serves one connection only.
pub(crate) fn is_alone() -> bool {
    LAST.get().1 >= ALONE_AFTER
}

/// The lulls of one connection.
pub(crate) struct Lulls {
    id: u64,
    /// Since when it looks.
    began: Option<Instant>,
    /// The shard turns to its ring in between.
    turn: Option<Turn>,
    /// Looks in vain, one after the other.
    misses: u8,
    /// Lulls to pass over.
    pass_over: u16,
}

/// Those of a connection on its way from one shard to another.
#[derive(Debug, Default)]
pub(crate) struct Away {
    was_alone: bool,
    misses: u8,
    pass_over: u16,
}

impl Default for Lulls {
    fn default() -> Self {
        Away::default().into()
    }
}

impl From<Away> for Lulls {
    /// A shard that serves nobody else is alone with a connection that another was alone with.
    fn from(Away { was_alone, misses, pass_over }: Away) -> Self {
        let id = NEXT.replace(NEXT.get() + 1);
        if was_alone && LAST.get().0 == NOBODY {
            LAST.set((id, ALONE_AFTER));
        }
        Self { id, began: None, turn: None, misses, pass_over }
    }
}

impl Lulls {
    /// Its connection leaves the shard.
    pub(crate) fn leave(&self) -> Away {
        let away = Away { was_alone: self.is_alone(), misses: self.misses, pass_over: self.pass_over };
        let (last, times) = LAST.get();
        if last == self.id {
            LAST.set((NOBODY, times));
        }
        away
    }

    /// Whether its connection is the only one that the shard serves.
    pub(crate) fn is_alone(&self) -> bool {
        LAST.get().0 == self.id && is_alone()
    }

    /// A request on this connection was answered.
    pub(crate) fn answered(&self) {
        let (last, times) = LAST.get();
        LAST.set((self.id, if last == self.id { times.saturating_add(1) } else { 0 }));
    }

    /// Whether a look is under way.
    pub(crate) fn is_looking(&self) -> bool {
        self.began.is_some() || self.turn.is_some()
    }

    /// Looks until something is found or the time is over, which is `None`; once only where more does not pay. Pending
    /// while the shard turns to its ring in between; the task is woken.
    pub(crate) fn poll_look<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut found: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Option<T>> {
        if !is_alone() {
            (self.began, self.turn) = (None, None);
            return Poll::Ready(None);
        }
        if let Some(turn) = &mut self.turn {
            ready!(Pin::new(turn).poll(cx));
            self.turn = None;
        }
        let stretch = now();
        loop {
            // Also where something is there each time: others are to have what came for them.
            if now() - stretch >= STRETCH || !may_look() {
                // The first poll is never ready.
                let _ = Pin::new(self.turn.insert(Turn::new())).poll(cx);
                return Poll::Pending;
            }
            let found = found(cx);
            let looked_for = self.began.map(|began| now() - began);
            if let Poll::Ready(found) = found {
                if let Some(looked_for) = looked_for {
                    self.end(looked_for < LOOK_FOR);
                }
                return Poll::Ready(Some(found));
            }
            match looked_for {
                None if self.pass_over > 0 => {
                    self.pass_over -= 1;
                    return Poll::Ready(None);
                }
                None => self.began = Some(stretch),
                Some(looked_for) if looked_for >= LOOK_FOR => {
                    self.end(false);
                    return Poll::Ready(None);
                }
                Some(_) => {}
            }
            thread::yield_now();
        }
    }

    /// `paid`: what was looked for came before a sleeper would have had it.
    fn end(&mut self, paid: bool) {
        self.began = None;
        self.misses = if paid { 0 } else { (self.misses + 1).min(MISSES_MAX) };
        self.pass_over = if paid { 0 } else { 1 << self.misses };
    }
}

#[cfg(not(test))]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
use tests::now;

#[cfg(test)]
mod tests {
    use std::{sync::LazyLock, task::Waker};

    use glommio::{LocalExecutorBuilder, Placement};

    use super::*;
    use crate::tcp::use_up_looks;

    thread_local! {
        static PASSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    fn pass(time: Duration) {
        PASSED.set(PASSED.get() + time);
    }

    /// Time passes by being asked for.
    pub(super) fn now() -> Instant {
        static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
        pass(Duration::from_micros(1));
        *BEGAN + PASSED.get()
    }

    /// Turns to the ring take an executor.
    fn on_a_shard(test: impl FnOnce()) {
        LocalExecutorBuilder::new(Placement::Unbound).make().unwrap().run(async { test() });
    }

    fn cx() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    /// Looks until the end; says what was found.
    fn find<T>(lulls: &mut Lulls, mut found: impl FnMut() -> Poll<T>) -> Option<T> {
        loop {
            if let Poll::Ready(end) = lulls.poll_look(&mut cx(), |_| found()) {
                return end;
            }
        }
    }

    /// Looks for what never comes; says whether it looked more than once.
    fn looks(lulls: &mut Lulls) -> bool {
        let mut looks = 0;
        let nothing = find(lulls, || {
            looks += 1;
            Poll::<()>::Pending
        });
        assert_eq!(nothing, None);
        looks > 1
    }

    #[test]
    fn a_shard_looks_again_while_it_serves_one_connection_only() {
        on_a_shard(|| {
            let (mut one, other) = (Lulls::default(), Lulls::default());
            for _ in 0..ALONE_AFTER {
                one.answered();
                assert!(!looks(&mut one));
            }
            one.answered();
            assert_eq!(find(&mut one, || Poll::Ready(7)), Some(7));
            other.answered();
            assert!(!looks(&mut Lulls::default()));
        });
    }

    #[test]
    fn a_connection_that_is_alone_stays_so_on_the_next_shard_if_that_serves_nobody() {
        on_a_shard(|| {
            let serve = |lulls: &Lulls| (0..=ALONE_AFTER).for_each(|_| lulls.answered());
            let first = Lulls::default();
            serve(&first);
            assert!(first.is_alone());
            let away = first.leave();
            assert!(!first.is_alone());
            let moved = Lulls::from(away);
            assert!(moved.is_alone());
            let other = Lulls::default();
            assert!(!other.is_alone());
            serve(&other);
            assert!(other.is_alone() && !moved.is_alone());
            let away = moved.leave();
            assert!(other.is_alone());
            assert!(!Lulls::from(away).is_alone());
            let away = other.leave();
            assert!(!Lulls::default().is_alone());
            assert!(Lulls::from(away).is_alone());
        });
    }

    #[test]
    fn a_shard_turns_to_its_ring_while_it_looks() {
        on_a_shard(|| {
            let mut lulls = Lulls::default();
            (0..=ALONE_AFTER).for_each(|_| lulls.answered());
            assert!(lulls.poll_look(&mut cx(), |_| Poll::<()>::Pending).is_pending());
            assert!(lulls.is_looking());
            assert!(!looks(&mut Lulls { pass_over: 1, ..Lulls::default() }));
            assert_eq!(find(&mut lulls, || Poll::Ready(7)), Some(7));
            assert!(!lulls.is_looking());
        });
    }

    #[test]
    fn a_shard_turns_to_its_ring_also_where_something_is_there_each_time() {
        on_a_shard(|| {
            let mut lulls = Lulls::default();
            (0..=ALONE_AFTER).for_each(|_| lulls.answered());
            let mut look = || lulls.poll_look(&mut cx(), |_| Poll::Ready(7));
            assert_eq!(look(), Poll::Ready(Some(7)));
            use_up_looks();
            assert!(look().is_pending());
            assert_eq!(find(&mut lulls, || Poll::Ready(7)), Some(7));
        });
    }

    #[test]
    fn after_looks_in_vain_it_looks_ever_less_often_and_again_after_a_find() {
        on_a_shard(|| {
            let mut lulls = Lulls::default();
            (0..=ALONE_AFTER).for_each(|_| lulls.answered());
            for passed_over in [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024] {
                assert!(looks(&mut lulls));
                assert_eq!((0..passed_over).find(|_| looks(&mut lulls)), None, "{passed_over}");
            }
            lulls.end(true);
            assert!(looks(&mut lulls));
        });
    }

    #[test]
    fn a_find_that_took_longer_than_a_look_counts_as_none() {
        on_a_shard(|| {
            let mut lulls = Lulls::default();
            (0..=ALONE_AFTER).for_each(|_| lulls.answered());
            let mut times = 0;
            let late = || {
                times += 1;
                if times == 1 {
                    return Poll::Pending;
                }
                pass(LOOK_FOR);
                Poll::Ready(7)
            };
            assert_eq!(find(&mut lulls, late), Some(7));
            assert!(!looks(&mut lulls));
        });
    }
}
