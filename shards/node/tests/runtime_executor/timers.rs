//! Coarse waits.

use crate::{join, run};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::{Duration, Instant},
};
use wasmkeep_node::runtime::{Elapsed, Hooks};

#[test]
fn waits_end_in_the_order_of_their_deadlines_and_never_early() {
    let shards = run(1, Hooks::default(), |context| async move {
        let order = Rc::new(RefCell::new(Vec::new()));
        let tasks: Vec<_> = [400u64, 0, 200, 600, 1]
            .into_iter()
            .map(|millis| {
                let (order, sleeper) = (order.clone(), context.sleeper.clone());
                glommio::spawn_local(async move {
                    let began = Instant::now();
                    sleeper.sleep(Duration::from_millis(millis)).await;
                    assert!(began.elapsed() >= Duration::from_millis(millis));
                    order.borrow_mut().push(millis);
                })
                .detach()
            })
            .collect();
        for task in tasks {
            task.await;
        }
        order.take()
    });
    assert_eq!(join("waits", shards), [[0, 1, 200, 400, 600]]);
}

#[test]
fn a_shorter_wait_is_not_kept_waiting_by_a_longer_one() {
    let shards = run(1, Hooks::default(), |context| async move {
        let sleeper = context.sleeper;
        let long = glommio::spawn_local({
            let sleeper = sleeper.clone();
            async move { sleeper.sleep(Duration::from_secs(3600)).await }
        });
        glommio::executor().yield_now().await;
        sleeper.sleep(Duration::from_millis(60)).await;
        long.cancel().await.is_none()
    });
    assert_eq!(join("the shorter wait", shards), [true]);
}

#[test]
fn a_limit_ends_what_takes_longer_and_lets_the_rest_pass() {
    struct CountDrop(Rc<Cell<u32>>);
    impl Drop for CountDrop {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let shards = run(1, Hooks::default(), |context| async move {
        let sleeper = &context.sleeper;
        let dropped = Rc::new(Cell::new(0));
        let held = CountDrop(dropped.clone());
        let endless = async move {
            let _held = held;
            std::future::pending::<()>().await;
        };
        assert_eq!(sleeper.timeout(Duration::from_millis(60), endless).await, Err(Elapsed));
        assert_eq!(dropped.get(), 1);
        assert_eq!(sleeper.timeout(Duration::from_secs(3600), async { 7 }).await, Ok(7));
        // Waits that were begun and given up leave nothing behind that would keep others from firing.
        for _ in 0..10_000 {
            let yielding = async { glommio::executor().yield_now().await };
            let wait = sleeper.timeout(Duration::from_secs(30), yielding);
            assert!(wait.await.is_ok());
        }
        sleeper.sleep(Duration::from_millis(60)).await;
    });
    join("limits", shards);
}
