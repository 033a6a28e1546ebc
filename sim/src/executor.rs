//! A single-threaded executor with a virtual clock: which ready task goes next is drawn from the seed.
//!
//! Every poll costs a little virtual time, so work that never waits still meets its time limit. When nothing is
//! ready the clock jumps to the next timer.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fmt,
    future::Future,
    mem,
    pin::Pin,
    rc::Rc,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use crate::dice::Dice;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Tasks that were woken. Wakers must be `Sync`, hence the lock; only one thread ever takes it.
type Ready = Arc<Mutex<Vec<u64>>>;

struct TaskWaker {
    task: u64,
    queued: AtomicBool,
    ready: Ready,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.ready.lock().unwrap_or_else(PoisonError::into_inner).push(self.task);
        }
    }
}

/// The executor of one life of the simulated shard, or of the tasks of one process.
pub struct Executor {
    now: Cell<Duration>,
    /// Tasks with their wakers; the running one is taken out.
    tasks: RefCell<BTreeMap<u64, (Task, Arc<TaskWaker>)>>,
    ready: Ready,
    timers: RefCell<BTreeMap<(Duration, u64), Waker>>,
    numbers: Cell<u64>,
    dice: RefCell<Dice>,
    poll_cost_us_max: Cell<u64>,
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("now", &self.now.get()).finish_non_exhaustive()
    }
}

impl Executor {
    /// Starts at the moment `now`; each poll takes 1 to `poll_cost_us_max` microseconds.
    #[must_use]
    pub fn new(now: Duration, dice: Dice, poll_cost_us_max: u64) -> Rc<Self> {
        Rc::new(Self {
            now: Cell::new(now),
            tasks: RefCell::default(),
            ready: Ready::default(),
            timers: RefCell::default(),
            numbers: Cell::new(0),
            dice: RefCell::new(dice),
            poll_cost_us_max: Cell::new(poll_cost_us_max.max(1)),
        })
    }

    fn number(&self) -> u64 {
        let number = self.numbers.get();
        self.numbers.set(number + 1);
        number
    }

    /// Virtual time.
    pub fn now(&self) -> Duration {
        self.now.get()
    }

    /// Lets time pass in which nothing runs.
    pub fn advance(&self, by: Duration) {
        self.now.set(self.now.get() + by);
    }

    /// From here on the machine is fast: a poll takes a microsecond.
    pub fn calm(&self) {
        self.poll_cost_us_max.set(1);
    }

    /// Adds a task; it is ready at once.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let number = self.number();
        let waker =
            Arc::new(TaskWaker { task: number, queued: AtomicBool::new(false), ready: self.ready.clone() });
        waker.wake_by_ref();
        self.tasks.borrow_mut().insert(number, (Box::pin(task), waker));
    }

    /// Adds a task and, as the seed has it, polls it before this returns: some executors do.
    pub fn spawn_eagerly(&self, task: impl Future<Output = ()> + 'static) {
        if self.dice.borrow_mut().index(2) == 0 {
            return self.spawn(task);
        }
        let number = self.number();
        let waker =
            Arc::new(TaskWaker { task: number, queued: AtomicBool::new(false), ready: self.ready.clone() });
        self.poll(number, Box::pin(task), waker);
    }

    fn poll(&self, number: u64, mut task: Task, waker: Arc<TaskWaker>) {
        let std_waker = Waker::from(waker.clone());
        if task.as_mut().poll(&mut Context::from_waker(&std_waker)).is_pending() {
            self.tasks.borrow_mut().insert(number, (task, waker));
        }
    }

    /// Ends after `duration` of virtual time.
    pub fn sleep(self: &Rc<Self>, duration: Duration) -> Sleep {
        Sleep { executor: self.clone(), key: (self.now() + duration, self.number()) }
    }

    /// Tasks that have not ended.
    pub fn task_count(&self) -> usize {
        self.tasks.borrow().len()
    }

    fn fire_due(&self) {
        while let Some(timer) = self.timers.borrow_mut().first_entry()
            && timer.key().0 <= self.now.get()
        {
            timer.remove().wake();
        }
    }

    /// Polls one task, moving the clock to the next timer if need be. `false`: nothing is left to do.
    pub fn step(&self) -> bool {
        if self.poll_one() {
            return true;
        }
        let Some(deadline) = self.next_timer() else { return false };
        self.now.set(deadline);
        // The timer's task may be gone.
        self.poll_one();
        true
    }

    /// When the next timer is due.
    pub fn next_timer(&self) -> Option<Duration> {
        self.timers.borrow().first_key_value().map(|((deadline, _), _)| *deadline)
    }

    /// For a clock that somebody else moves: it is `now`, and every task that is ready by then is polled, until none
    /// is. `false` when that takes more than `polls_max`.
    pub fn run_ready(&self, now: Duration, polls_max: u64) -> bool {
        self.now.set(self.now.get().max(now));
        (0..polls_max).any(|_| !self.poll_one())
    }

    /// Polls one of the tasks that are ready, if any is.
    fn poll_one(&self) -> bool {
        self.fire_due();
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if ready.is_empty() {
            return false;
        }
        let number = {
            let mut dice = self.dice.borrow_mut();
            self.now
                .set(self.now.get() + Duration::from_micros(dice.within(1..=self.poll_cost_us_max.get())));
            let chosen = dice.index(ready.len());
            ready.swap_remove(chosen)
        };
        drop(ready);
        // A late wake of a task that has ended finds nothing.
        let taken = self.tasks.borrow_mut().remove(&number);
        if let Some((task, waker)) = taken {
            waker.queued.store(false, Ordering::Relaxed);
            self.poll(number, task, waker);
        }
        true
    }

    /// Steps until nothing is left to do; `false` when that takes more than `steps_max`.
    pub fn drain(&self, steps_max: u64) -> bool {
        (0..steps_max).any(|_| !self.step())
    }

    /// Drops every task where it stands.
    pub fn clear(&self) {
        // Dropping a task may hand blocking work off, which spawns.
        loop {
            let tasks = mem::take(&mut *self.tasks.borrow_mut());
            if tasks.is_empty() {
                return;
            }
            drop(tasks);
        }
    }
}

/// See [`Executor::sleep`].
pub struct Sleep {
    executor: Rc<Executor>,
    key: (Duration, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.executor.now() >= self.key.0 {
            return Poll::Ready(());
        }
        self.executor.timers.borrow_mut().insert(self.key, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.executor.timers.borrow_mut().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order_of(seed: u64) -> Vec<u64> {
        let executor = Executor::new(Duration::ZERO, Dice::new(seed), 10);
        let order = Rc::new(RefCell::new(Vec::new()));
        for number in 0..8 {
            let (inner, order) = (executor.clone(), order.clone());
            executor.spawn(async move {
                inner.sleep(Duration::from_millis(1)).await;
                order.borrow_mut().push(number);
            });
        }
        assert!(executor.drain(1_000));
        order.take()
    }

    #[test]
    fn the_seed_decides_the_order_of_tasks() {
        assert_eq!(order_of(3), order_of(3));
        assert!((0..8).any(|seed| order_of(seed) != order_of(3)));
    }

    #[test]
    fn the_clock_jumps_to_the_next_timer_and_a_dropped_timer_is_forgotten() {
        let executor = Executor::new(Duration::ZERO, Dice::new(1), 1);
        let far = executor.sleep(Duration::from_secs(1_000));
        let inner = executor.clone();
        executor.spawn(async move {
            drop(far);
            inner.sleep(Duration::from_secs(5)).await;
        });
        assert!(executor.drain(10));
        assert_eq!(executor.now().as_secs(), 5);
        assert_eq!(executor.task_count(), 0);
    }

    #[test]
    fn work_that_never_waits_still_spends_time() {
        let executor = Executor::new(Duration::ZERO, Dice::new(1), 10);
        executor.spawn(std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            Poll::Pending
        }));
        assert!(!executor.drain(1_000));
        assert!(executor.now() >= Duration::from_millis(1));
    }
}
