//! Alarms that reach a shard from outside its book: found in databases after a start, or overdue in the bucket.

use std::rc::Rc;

use futures::channel::oneshot;
use wasmkeep_actor::{World, alarm::Target};
use wasmkeep_protocol::ActorId;

use super::{Shard, world::ShardWorld};
use crate::alarm::Found;

impl Shard {
    /// Has an actor of this shard asked whether its alarm is due, because the bucket says that it is overdue.
    pub(crate) fn look(&self, id: ActorId, looked: oneshot::Sender<bool>) {
        if self.world.alarm_target(&id) != Target::Ready {
            return;
        }
        let (event, answer) = self.world.alarm_event();
        self.actors.dispatch(&id, event);
        let metrics = self.node.metrics.cluster.clone();
        glommio::spawn_local(async move {
            let asked = answer.await;
            metrics.looked(asked);
            // A bucket core that is gone needs no answer.
            let _ = looked.send(asked);
        })
        .detach();
    }
}

/// Puts into the book what the look through the databases finds.
pub(super) async fn take_found(world: Rc<ShardWorld>, found: flume::Receiver<Found>) {
    while let Ok(found) = found.recv_async().await {
        match found {
            Found::Alarm(id, wake) => world.announce(&id, wake),
            Found::End(done) => drop(done.send(())),
        }
    }
}
