//! Coarse waits: limits of events, idle connections, hibernation. Owns one timer of the executor per shard
//! however many waits there are; a short wait has a timer of its own.
//!
//! A wait ends at its time or up to [`GRAIN`] later. The driver sleeps until the next slot that has a wait, so a
//! shard with nothing to wait for wakes for nothing.

use super::wheel::{Key, Wheel};
use futures::future::{Either, select};
use glommio::timer::Timer;
use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    pin::{Pin, pin},
    rc::{Rc, Weak},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

/// How late a wait may end. Every limit it serves is in seconds, and a coarser grain batches more wakes.
pub const GRAIN: Duration = Duration::from_millis(50);

/// The time given ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the time ran out")]
pub struct Elapsed;

/// A shard's coarse timers. Clones share one driver, which ends with the last of them.
#[derive(Debug, Clone)]
pub struct Sleeper(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    wheel: RefCell<Wheel>,
    origin: Instant,
    /// Tick the driver sleeps until; `u64::MAX` when it waits for a first wait.
    armed: Cell<u64>,
    driver: RefCell<Option<Waker>>,
}

impl Inner {
    fn tick_at_or_after(&self, when: Instant) -> u64 {
        when.saturating_duration_since(self.origin).as_nanos().div_ceil(GRAIN.as_nanos()) as u64
    }

    fn tick_begun(&self, now: Instant) -> u64 {
        (now.saturating_duration_since(self.origin).as_nanos() / GRAIN.as_nanos()) as u64
    }

    fn insert(&self, tick: u64, waker: Waker) -> Key {
        let key = self.wheel.borrow_mut().insert(tick, waker);
        if tick < self.armed.get() {
            self.armed.set(tick);
            let driver = self.driver.borrow_mut().take();
            if let Some(driver) = driver {
                driver.wake();
            }
        }
        key
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.get_mut().take() {
            driver.wake();
        }
    }
}

impl Sleeper {
    /// Starts the driver on the current executor.
    ///
    /// # Panics
    /// Outside an executor.
    pub fn start() -> Sleeper {
        let inner = Rc::new(Inner {
            wheel: RefCell::new(Wheel::new()),
            origin: Instant::now(),
            armed: Cell::new(u64::MAX),
            driver: RefCell::new(None),
        });
        glommio::spawn_local(drive(Rc::downgrade(&inner))).detach();
        Sleeper(inner)
    }

    /// A wait of `duration` from now.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(Instant::now() + duration)
    }

    /// A wait that a [`GRAIN`] more would spoil: with a timer of its own where it is shorter.
    pub async fn pause(&self, duration: Duration) {
        if duration < GRAIN {
            glommio::timer::sleep(duration).await;
        } else {
            self.sleep(duration).await;
        }
    }

    /// A wait until `deadline`.
    pub fn sleep_until(&self, deadline: Instant) -> Sleep {
        Sleep { sleeper: self.0.clone(), deadline, key: None }
    }

    /// Runs `future` for at most about `limit`.
    ///
    /// # Errors
    /// When the limit came first; the future is dropped.
    pub async fn timeout<F: Future>(&self, limit: Duration, future: F) -> Result<F::Output, Elapsed> {
        match select(pin!(future), self.sleep(limit)).await {
            Either::Left((output, _)) => Ok(output),
            Either::Right(_) => Err(Elapsed),
        }
    }
}

/// A wait. Does nothing until polled; dropping it cancels it in O(1).
#[derive(Debug)]
pub struct Sleep {
    sleeper: Rc<Inner>,
    deadline: Instant,
    key: Option<Key>,
}

impl Sleep {
    /// When it ends at the earliest.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    fn cancel(&mut self) {
        if let Some(key) = self.key.take() {
            // The waker is dropped after the borrow: it may be the last hold on a task that owns other waits.
            let waker = self.sleeper.wheel.borrow_mut().remove(key);
            drop(waker);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &self.key {
            Some(key) => {
                let mut wheel = self.sleeper.wheel.borrow_mut();
                if !wheel.fired(key) {
                    wheel.set_waker(key, cx.waker());
                    return Poll::Pending;
                }
            }
            None => {
                if Instant::now() < self.deadline {
                    let tick = self.sleeper.tick_at_or_after(self.deadline);
                    self.key = Some(self.sleeper.insert(tick, cx.waker().clone()));
                    return Poll::Pending;
                }
            }
        }
        self.cancel();
        Poll::Ready(())
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.cancel();
    }
}

async fn drive(inner: Weak<Inner>) {
    let mut timer: Option<Timer> = None;
    let mut due = Vec::new();
    poll_fn(|cx| {
        loop {
            let Some(inner) = inner.upgrade() else { return Poll::Ready(()) };
            let now = Instant::now();
            let next = {
                let mut wheel = inner.wheel.borrow_mut();
                wheel.advance(inner.tick_begun(now), &mut due);
                wheel.next_tick()
            };
            due.drain(..).for_each(Waker::wake);
            inner.armed.set(next.unwrap_or(u64::MAX));
            *inner.driver.borrow_mut() = Some(cx.waker().clone());
            let Some(next) = next else {
                timer = None;
                return Poll::Pending;
            };
            let at = inner.origin + Duration::from_nanos(GRAIN.as_nanos() as u64 * next);
            let armed = timer.insert(Timer::new(at.saturating_duration_since(now)));
            if Pin::new(armed).poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await;
}
