//! Time and threads as the simulated node has them.

use std::{rc::Rc, time::Duration};

use wasmkeep_runtime::Runtime;

use super::world::World;

/// What replication is given in place of a node.
#[derive(Clone)]
pub(crate) struct Simulated(pub(crate) Rc<World>);

/// The moment the virtual clock starts at, by the bucket's calendar.
const EPOCH_MS: u64 = 1_700_000_000_000;

/// The time of day at a moment of the virtual clock.
pub(crate) fn calendar(now: Duration) -> u64 {
    EPOCH_MS + now.as_millis() as u64
}

impl World {
    /// The time of day.
    pub(crate) fn unix_ms(&self) -> u64 {
        calendar(self.executor.now())
    }
}

impl Runtime for Simulated {
    fn now(&self) -> Duration {
        self.0.executor.now()
    }

    fn unix_ms(&self) -> u64 {
        self.0.unix_ms()
    }

    fn random(&self) -> u128 {
        u128::from(self.0.dice.borrow_mut().next())
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.executor.spawn(task);
    }

    async fn sleep(&self, time: Duration) {
        self.0.executor.sleep(time).await;
    }

    async fn work<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let world = &self.0;
        let delay = world.dice.borrow_mut().below(3_000);
        world.executor.sleep(Duration::from_micros(delay)).await;
        if world.strikes(|parameters| parameters.work_drops) {
            return None;
        }
        Some(job())
    }
}
