//! What a shard does before an actor needs it: `on-init` tried once for a class, instances, databases.

use std::{path::Path, rc::Weak, time::Duration};

use wasmkeep_host::AheadError;
use wasmkeep_protocol::{ActorClass, ActorId};
use wasmkeep_storage::Database;

use super::world::ShardWorld;
use crate::runtime::Label;

/// Between a start that calls for more to be made ahead and the making: the event of that actor comes first.
const AHEAD_PAUSE: Duration = Duration::from_millis(1);

/// A start that takes longer is not made ahead.
const INSTANCES_AHEAD_WITHIN: Duration = Duration::from_secs(1);

impl ShardWorld {
    /// A database made ahead, moved to `path`: as the class's `on-init` leaves it where that is known, else empty.
    pub(super) fn spare_for(&self, id: &ActorId, path: &Path) -> Option<Database> {
        let code = self.node.classes.get(&id.class)?.code.load_full();
        let placed = self.spares.place(path, self.instances.template(&id.class, &code).as_ref());
        if self.spares.is_short() && !self.making_spares.replace(true) {
            self.make_spares();
        }
        placed
    }

    /// Has databases made, a moment later.
    fn make_spares(&self) {
        let Some(shard) = self.shard.get().and_then(Weak::upgrade) else { return };
        let sleeper = self.context.sleeper.clone();
        let work = async move {
            sleeper.pause(AHEAD_PAUSE).await;
            shard.world.making_spares.set(false);
            shard.world.spares.refill();
        };
        glommio::spawn_local(work).detach();
    }

    /// Makes instances of a class for actors yet to come, a moment later and one at a time: the event for which the last
    /// one was taken has not begun yet. Before the first, `on-init` is tried.
    pub(super) fn make_instances(&self, class: ActorClass) {
        let Some(shard) = self.shard.get().and_then(Weak::upgrade) else { return };
        let label = Label::new(&format!("instances of {class} made ahead"));
        let sleeper = self.context.sleeper.clone();
        let work = async move {
            sleeper.pause(AHEAD_PAUSE).await;
            let world = &shard.world;
            world.rehearse(&class).await;
            while let Some(code) = world.instances.next(&class) {
                let identity = world.identity(&class, "", 0, &code);
                let setting = world.setting(identity, None, None, &code.env);
                let making = code.version.instantiate_ahead(&setting);
                let made = sleeper.timeout(INSTANCES_AHEAD_WITHIN, making).await.ok();
                if !world.instances.made(&class, &code, made) {
                    break;
                }
                glommio::executor().yield_now().await;
            }
        };
        glommio::spawn_local(self.context.pulse.hold(label, work)).detach();
    }

    /// Runs the class's `on-init` in a database that is nobody's, once, to know what it leaves in each.
    async fn rehearse(&self, class: &ActorClass) {
        let Some((code, spare)) = self.instances.to_rehearse(class, || self.spares.take_blank()) else {
            return;
        };
        let path = spare.path().to_owned();
        let identity = self.identity(class, "", 0, &code);
        let setting = self.setting(identity, None, None, &code.env);
        let trying = code.version.rehearse_init(&setting, spare);
        match self.context.sleeper.timeout(INSTANCES_AHEAD_WITHIN, trying).await {
            Ok(Ok(Some(left))) => self.instances.rehearsed(class, &code, left),
            // It runs for each actor, and tells there what is wrong.
            Ok(Ok(None) | Err(AheadError::AsksForActor | AheadError::Failed(_))) | Err(_) => {}
        }
        self.offload.submit(Box::new(move || {
            if let Err(error) = wasmkeep_storage::remove(&path) {
                tracing::warn!("a spare database could not be removed: {error}");
            }
        }));
    }
}
