//! What a shard does before an actor needs it: `on-init` tried once for a class, instances, databases.

use std::{
    cell::{Cell, RefCell},
    path::{Path, PathBuf},
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use wasmkeep_host::{AheadError, Setting};
use wasmkeep_protocol::{ActorClass, ActorId};
use wasmkeep_storage::{Config, Database};

use super::{
    guest::{MemoryMeter, MeteredInstance},
    instances::Instances,
    spares::Spares,
    world::ShardWorld,
};
use crate::{
    runtime::{Label, OffloadPool},
    state::Code,
};

/// Between a start that calls for more to be made ahead and the making: the event of that actor comes first.
const PAUSE: Duration = Duration::from_millis(1);

/// A start, or an `on-init`, that takes longer is not made ahead.
const WITHIN: Duration = Duration::from_secs(1);

/// What is there, and what is called for.
pub(super) struct Ahead {
    instances: Instances,
    spares: Spares,
    /// Classes that want instances.
    wanted: RefCell<Vec<ActorClass>>,
    /// Somebody sees to it in a moment.
    is_called: Cell<bool>,
}

impl Ahead {
    /// `folder`: for the databases of this shard alone, on the file system of the others.
    pub(super) fn new(
        meter: Rc<MemoryMeter>,
        folder: PathBuf,
        config: Config,
        offload: Rc<OffloadPool>,
    ) -> Self {
        Self {
            instances: Instances::new(meter),
            spares: Spares::new(folder, config, offload),
            wanted: RefCell::default(),
            is_called: Cell::new(false),
        }
    }

    /// Lets go of what nobody came for.
    pub(super) fn sweep(&self, now: Duration) {
        self.instances.sweep(now);
        self.spares.sweep();
    }

    /// Lets go of all that is some class's.
    pub(super) fn clear(&self) {
        self.instances.clear();
        self.spares.sweep();
    }
}

impl ShardWorld {
    /// A database made ahead, moved to `path`: as the class's `on-init` leaves it where that is known, else empty.
    pub(super) fn spare_for(&self, id: &ActorId, path: &Path) -> Option<Database> {
        let Ahead { instances, spares, .. } = &self.ahead;
        let code = self.node.classes.get(&id.class)?.code.load_full();
        let placed = spares.place(path, instances.template(&id.class, &code).as_ref());
        if spares.is_short() {
            self.call_for_more();
        }
        placed
    }

    /// An instance made ahead for the actor of `setting`, which starts now.
    pub(super) fn instance_for(
        &self,
        class: &ActorClass,
        code: &Arc<Code>,
        setting: &Setting,
    ) -> Option<MeteredInstance> {
        self.ahead.instances.take(class, code, setting, self.node.now())
    }

    /// An actor of the class has started.
    pub(super) fn note_start(&self, class: &ActorClass, code: &Arc<Code>) {
        if self.ahead.instances.note_start(class, code, self.node.now()) {
            self.ahead.wanted.borrow_mut().push(class.clone());
            self.call_for_more();
        }
    }

    /// Has made what is called for, a moment later.
    fn call_for_more(&self) {
        let Some(shard) = self.shard.get().and_then(Weak::upgrade) else { return };
        if self.ahead.is_called.replace(true) {
            return;
        }
        let work = async move {
            let world = &shard.world;
            world.context.sleeper.pause(PAUSE).await;
            world.ahead.is_called.set(false);
            world.ahead.spares.refill();
            for class in world.ahead.wanted.take() {
                world.make_instances(&class).await;
            }
        };
        let label = Label::new("actors made ahead");
        glommio::spawn_local(self.context.pulse.hold(label, work)).detach();
    }

    /// Makes instances of a class for actors yet to come, one at a time with others' turns between. Before the first,
    /// `on-init` is tried.
    async fn make_instances(&self, class: &ActorClass) {
        self.rehearse(class).await;
        let instances = &self.ahead.instances;
        while let Some(code) = instances.next(class) {
            let setting = self.nobodys(class, &code);
            let making = code.version.instantiate_ahead(&setting);
            let made = self.context.sleeper.timeout(WITHIN, making).await.ok();
            if !instances.made(class, &code, made) {
                break;
            }
            glommio::executor().yield_now().await;
        }
    }

    /// Runs the class's `on-init` in a database that is nobody's, once, to know what it leaves in each.
    async fn rehearse(&self, class: &ActorClass) {
        let Ahead { instances, spares, .. } = &self.ahead;
        let Some((code, spare)) = instances.to_rehearse(class, || spares.take_blank()) else { return };
        let path = spare.path().to_owned();
        let setting = self.nobodys(class, &code);
        let trying = code.version.rehearse_init(&setting, spare);
        match self.context.sleeper.timeout(WITHIN, trying).await {
            Ok(Ok(Some(left))) => instances.rehearsed(class, &code, left),
            // It runs for each actor, and tells there what is wrong.
            Ok(Ok(None) | Err(AheadError::AsksForActor | AheadError::Failed(_))) | Err(_) => {}
        }
        spares.remove(path);
    }

    fn nobodys(&self, class: &ActorClass, code: &Code) -> Setting {
        self.setting(self.identity(class, "", 0, code), None, None, &code.env)
    }
}
