//! A shard that makes no progress is found by a thread that is no shard.

use std::{sync::mpsc, thread, time::Duration};

use wasmkeep_node::runtime::{Frozen, Hooks, Label, Watch};

use crate::{HUNG, join, run};

fn watched(frozen_after: Duration) -> (Hooks, mpsc::Receiver<Frozen>) {
    let (sender, found) = mpsc::channel();
    let tell = Box::new(move |frozen| sender.send(frozen).unwrap());
    (Hooks { watch: Some(Watch { frozen_after, tell }), ..Hooks::default() }, found)
}

#[test]
fn a_shard_that_blocks_is_found_with_whom_it_works_for() {
    for label in [None, Some("actor sql/loud")] {
        let (hooks, found) = watched(Duration::from_millis(300));
        let (let_go, blocked) = flume::bounded::<()>(0);
        let shards = run(2, hooks, move |context| {
            let blocked = blocked.clone();
            async move {
                if context.index == 1 {
                    let label = label.map(Label::new);
                    let _held = label.as_ref().map(|label| context.pulse.enter(label));
                    // As a write to a full pipe would: the core is free, and nothing of the shard runs.
                    let _ = blocked.recv();
                }
            }
        });
        let frozen = found.recv_timeout(HUNG).unwrap();
        assert_eq!((frozen.shard, frozen.held_by.as_deref()), (1, label));
        assert!(frozen.lasted >= Duration::from_millis(300), "{frozen}");
        drop(let_go);
        join("the shard that was blocked", shards);
    }
}

#[test]
fn shards_that_work_rest_or_have_ended_are_left_alone() {
    // A busy machine must not make a shard that works look frozen.
    let (hooks, found) = watched(Duration::from_secs(3));
    let shards = run(3, hooks, |context| async move {
        match context.index {
            // Busy without looking up by itself.
            0 => {
                let spinning = Label::new("spinning");
                let began = std::time::Instant::now();
                while began.elapsed() < Duration::from_secs(4) {
                    drop(context.pulse.enter(&spinning));
                    context.pulse.hold(spinning.clone(), glommio_yield()).await;
                }
            }
            1 => context.sleeper.sleep(Duration::from_secs(4)).await,
            _ => {}
        }
    });
    thread::sleep(Duration::from_millis(3500));
    assert!(found.try_recv().is_err());
    join("the shards", shards);
    assert!(found.try_recv().is_err());
}

async fn glommio_yield() {
    glommio::executor().yield_now().await;
}
