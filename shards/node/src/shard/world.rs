//! What a shard offers its actors: the executor, the offload threads, databases, instances.

use std::{
    cell::{OnceCell, RefCell},
    collections::HashMap,
    path::{Path, PathBuf},
    rc::{Rc, Weak},
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};

use wasmkeep_actor::{
    Happening, Refusal, Started, World,
    alarm::{Book, Target},
};
use wasmkeep_host::{ActorEvent, AlarmEvent, Calls, Identity, InstantiateError, Setting, outbound::Outbound};
use wasmkeep_protocol::{
    ActorClass, ActorId, ActorName,
    alarm::Wake,
    close,
    durability::Durability,
    limits::{SOCKET_CLOSE_WITHIN, SOCKET_MESSAGE_BYTES_MAX, SOCKET_QUEUE_BYTES_MAX},
};
use wasmkeep_storage::{Database, Offload, OpenError};

use super::{
    Shard,
    ahead::Ahead,
    gate::{self, Gated, GatedCalls, GatedOutbound, GatedSockets},
    guest::{MemoryMeter, MeteredInstance},
    leased::{LeasedCalls, LeasedOutbound},
    replica::{self, Means, Replica},
};
use crate::{
    metrics::ShardMetrics,
    runtime::{Label, OffloadPool, ShardContext},
    socket::{Rules, Sockets},
    state::{Code, NodeState},
};

/// A database that is being looked at for an alarm is free again soon.
const LOOKED_AT_PAUSE: Duration = Duration::from_millis(5);
const LOOKED_AT_TRIES_MAX: u32 = 40;

/// One shard's side of its actors.
pub(crate) struct ShardWorld {
    pub(crate) node: Arc<NodeState>,
    pub(crate) context: ShardContext,
    pub(crate) offload: Rc<OffloadPool>,
    pub(crate) metrics: Rc<ShardMetrics>,
    pub(crate) memory: Rc<MemoryMeter>,
    /// Set once the shard it belongs to is there.
    pub(crate) calls: OnceCell<Rc<dyn Calls>>,
    /// As above.
    pub(crate) shard: OnceCell<Weak<Shard>>,
    pub(crate) sockets: Sockets,
    pub(crate) book: Rc<Book>,
    /// Of the actors that are open, on a node with a bucket.
    replicas: RefCell<HashMap<ActorId, Rc<Replica>>>,
    pub(super) ahead: Ahead,
}

impl ShardWorld {
    pub(crate) fn new(
        node: Arc<NodeState>,
        context: ShardContext,
        metrics: Rc<ShardMetrics>,
        book: Rc<Book>,
    ) -> Self {
        let offload = Rc::new(node.offload.clone());
        let rules = Rules {
            message_bytes_max: SOCKET_MESSAGE_BYTES_MAX,
            queue_bytes_max: SOCKET_QUEUE_BYTES_MAX,
            ping_after: node.limits.socket_ping_after,
            close_within: SOCKET_CLOSE_WITHIN,
        };
        let sockets = Sockets::new(rules, context.sleeper.clone(), node.metrics.sockets(context.index));
        let (memory, calls, shard) = (Rc::<MemoryMeter>::default(), OnceCell::new(), OnceCell::new());
        let replicas = RefCell::default();
        let folder = node.spares_dir.join(context.index.to_string());
        let ahead = Ahead::new(Rc::clone(&memory), folder, node.storage.clone(), Rc::clone(&offload));
        Self { node, context, offload, metrics, memory, calls, shard, sockets, book, replicas, ahead }
    }

    /// Puts an alarm found in a database into the book.
    pub(super) fn announce(&self, id: &ActorId, wake: Wake) {
        if let Err(error) = self.book.announce(id, wake) {
            tracing::error!(class = %id.class, name = %id.name, "an alarm could not be noted: {error}");
        }
    }

    fn announce_alarm_of(&self, id: &ActorId, database: &Database) {
        if let Some(wake) = database.alarm().ok().and_then(|alarm| alarm.wake()) {
            self.announce(id, wake);
        }
    }

    /// As the databases are opened while somebody looks at each for an alarm, which takes a millisecond.
    async fn open_beside_a_look(&self, id: &ActorId, path: &Path) -> Result<Database, OpenError> {
        let mut tries = 0;
        loop {
            match Database::open_on(&*self.offload, path, &self.node.storage).await {
                Err(OpenError::Locked { .. }) if tries < LOOKED_AT_TRIES_MAX => {
                    tries += 1;
                    self.context.sleeper.pause(LOOKED_AT_PAUSE).await;
                }
                opened => {
                    let database = opened?;
                    self.announce_alarm_of(id, &database);
                    return Ok(database);
                }
            }
        }
    }

    /// Where the actor's database is.
    pub(crate) fn database_path(&self, id: &ActorId) -> PathBuf {
        let mut path = self.node.databases_dir.join(id.class.as_str());
        path.push(format!("{}.db", id.name.file_stem()));
        path
    }

    /// A fresh instance of the stateless component, if the node has one.
    pub(crate) async fn start_stateless(&self) -> Option<Result<MeteredInstance, Refusal>> {
        let component = self.node.stateless.as_ref()?;
        let identity = Arc::clone(&component.identity);
        let setting = self.setting(identity, None, None, &component.env);
        Some(self.metered(component.version.instantiate(setting).await))
    }

    pub(super) fn setting(
        &self,
        identity: Arc<Identity>,
        database: Option<Rc<Database>>,
        sockets: Option<Rc<dyn wasmkeep_host::Sockets>>,
        env: &Arc<Vec<(String, String)>>,
    ) -> Setting {
        Setting {
            identity,
            database,
            sockets,
            offload: Rc::clone(&self.offload) as Rc<dyn Offload>,
            env: Arc::clone(env),
            alarms: Some(Rc::clone(&self.book)),
            calls: self.calls.get().cloned(),
            timers: self.node.timers.handle(),
            outbound: Some(self.node.egress.for_instance()),
        }
    }

    pub(super) fn identity(
        &self,
        class: &ActorClass,
        name: &str,
        generation: u64,
        code: &Code,
    ) -> Arc<Identity> {
        Arc::new(Identity {
            tenant: self.node.tenant.to_string(),
            class: class.to_string(),
            name: name.to_owned(),
            node: self.node.node_id.to_string(),
            generation,
            version: code.version.id().to_owned(),
        })
    }

    /// The setting with the node's lease before every way out, and the actor's gate before that, if it has one.
    fn gated(&self, id: &ActorId, mut setting: Setting) -> Setting {
        let Some(replica) = self.replica(id) else { return setting };
        let lease = || replica.lease().clone();
        setting.calls =
            setting.calls.map(|calls| Rc::new(LeasedCalls { calls, lease: lease() }) as Rc<dyn Calls>);
        setting.outbound = setting
            .outbound
            .map(|outbound| Arc::new(LeasedOutbound { outbound, lease: lease() }) as Arc<dyn Outbound>);
        let Some(gate) = replica.gate() else { return setting };
        let calls = setting.calls.take();
        setting.calls = calls.map(|calls| Rc::new(GatedCalls { calls, door: gate.door() }) as Rc<dyn Calls>);
        let outbound = setting.outbound.take();
        setting.outbound = outbound
            .map(|outbound| Arc::new(GatedOutbound { outbound, door: gate.door() }) as Arc<dyn Outbound>);
        setting.sockets = Some(Rc::new(GatedSockets::new(self.sockets.of(id, Some(lease())), gate)));
        setting
    }

    fn replica(&self, id: &ActorId) -> Option<Rc<Replica>> {
        self.node.cluster.as_ref()?;
        self.replicas.borrow().get(id).cloned()
    }

    fn metered(
        &self,
        instance: Result<wasmkeep_host::Instance, InstantiateError>,
    ) -> Result<MeteredInstance, Refusal> {
        match instance {
            Ok(instance) => Ok(MeteredInstance::new(instance, Rc::clone(&self.memory))),
            Err(InstantiateError::NoRoom) => Err(Refusal::NoRoom),
            Err(InstantiateError::Failed(reason)) => Err(Refusal::Start(reason)),
        }
    }
}

/// Tells a database whose actor it is, where its file does not.
fn named(id: &ActorId, database: Database) -> Database {
    let tells = ActorName::from_file_stem(&id.name.file_stem()).is_some();
    if tells { database } else { database.named(id.name.to_string()) }
}

impl World for ShardWorld {
    type Guest = MeteredInstance;

    fn now(&self) -> Duration {
        self.node.now()
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> {
        self.context.sleeper.pause(duration)
    }

    fn spawn(&self, id: &ActorId, task: impl Future<Output = ()> + 'static) {
        let label = Label::new(&format!("actor {id}"));
        glommio::spawn_local(self.context.pulse.hold(label, task)).detach();
        if let Some(shard) = self.shard.get().and_then(Weak::upgrade) {
            shard.keep_sweeping();
        }
    }

    fn offload(&self) -> &dyn Offload {
        &*self.offload
    }

    async fn open(&self, id: &ActorId) -> Result<Database, Refusal> {
        if let Some(cluster) = &self.node.cluster {
            let path = self.database_path(id);
            let durability =
                self.node.classes.get(&id.class).map_or_else(Durability::default, |class| class.durability);
            let means = Means {
                cluster,
                offload: &self.offload,
                config: &self.node.storage,
                metrics: &self.node.metrics.cluster,
                book: &self.book,
            };
            let opened = replica::open(means, id, &path, durability).await;
            if let Err(refusal) = &opened {
                tracing::warn!(class = %id.class, name = %id.name, "{refusal}");
            }
            let (database, replica) = opened?;
            if let Some(gate) = replica.gate() {
                let (gate, replica) = (Rc::clone(gate), Rc::clone(&replica));
                self.spawn(id, async move { gate::keep(gate, |txid| replica.landed(txid)).await });
            }
            self.replicas.borrow_mut().insert(id.clone(), replica);
            // Another node may have set it.
            self.announce_alarm_of(id, &database);
            return Ok(named(id, database));
        }
        let path = self.database_path(id);
        if let Some(database) = self.spare_for(id, &path) {
            return Ok(named(id, database));
        }
        let opened = if self.node.looking_for_alarms.load(Ordering::Acquire) {
            self.open_beside_a_look(id, &path).await
        } else {
            Database::begin_open(&*self.offload, &path, &self.node.storage)
        };
        let opened = opened.map_err(|error| {
            tracing::error!(class = %id.class, name = %id.name, "{error}");
            Refusal::from(&error)
        });
        Ok(named(id, opened?))
    }

    async fn start(
        &self,
        id: &ActorId,
        database: &Rc<Database>,
    ) -> Result<Started<MeteredInstance>, Refusal> {
        let Some(class) = self.node.classes.get(&id.class) else {
            return Err(Refusal::Start(format!("no component serves the class {}", id.class)));
        };
        let code = class.code.load_full();
        let version = code.version.id().to_owned();
        let generation = self.replica(id).map_or(0, |replica| replica.generation());
        let identity = self.identity(&id.class, &id.name.to_string(), generation, &code);
        let lease = self.replica(id).map(|replica| replica.lease().clone());
        let sockets = Rc::new(self.sockets.of(id, lease)) as Rc<dyn wasmkeep_host::Sockets>;
        let setting = self.setting(identity, Some(Rc::clone(database)), Some(sockets), &code.env);
        let setting = self.gated(id, setting);
        let started = match self.instance_for(&id.class, &code, &setting) {
            Some(instance) => Ok(instance),
            None => self.metered(code.version.instantiate(setting).await),
        };
        if started.is_ok() {
            self.note_start(&id.class, &code);
        }
        let started = started.map(|guest| guest.behind(Gated::new(self.replica(id), database)));
        if let Err(refusal) = &started {
            tracing::error!(class = %id.class, name = %id.name, "{refusal}");
        }
        Ok(Started { guest: started?, version })
    }

    fn may_run(&self, id: &ActorId) -> Result<(), Refusal> {
        match self.replica(id) {
            Some(replica) if !replica.stands() => {
                Err(Refusal::NotHeld("the actor is no longer this node's".into()))
            }
            _ => Ok(()),
        }
    }

    async fn replicate(&self, id: &ActorId, database: &Rc<Database>) -> Result<(), String> {
        match self.replica(id) {
            Some(replica) => replica.replicate(database).await,
            None => Ok(()),
        }
    }

    async fn close(&self, id: &ActorId, database: Database, erasing: bool) {
        let replica = self.replica(id);
        if let Some(replica) = &replica
            && !erasing
        {
            let all_landed = replica.settle(&database).await;
            if let Some(gate) = replica.gate() {
                gate.close(all_landed);
            }
        }
        if erasing {
            return database.discard(&*self.offload).await;
        }
        database.close(&*self.offload).await;
        if let Some(replica) = replica {
            self.replicas.borrow_mut().remove(id);
            replica.finish().await;
        }
    }

    fn not_admitted(&self, id: &ActorId) {
        if let Some(cluster) = &self.node.cluster {
            let (cluster, id) = (cluster.clone(), id.clone());
            glommio::spawn_local(async move { cluster.unused(&id).await }).detach();
        }
    }

    async fn erase(&self, id: &ActorId) {
        let replica = self.replicas.borrow_mut().remove(id);
        if let Some(replica) = replica {
            let deleted = replica.delete().await;
            if let Some(gate) = replica.gate() {
                gate.close(deleted.is_ok());
            }
            if let Err(error) = deleted {
                // As for a plain write whose node died: the next request finds the actor as it was (R-DEL-1).
                tracing::error!(class = %id.class, name = %id.name, "a deletion may not be in the bucket: {error}");
            }
        }
        self.sockets.close_actor(id, close::NORMAL, "the actor was deleted");
        let path = self.database_path(id);
        let removed = self.offload.run(move || wasmkeep_storage::remove(&path)).await;
        let trouble = match removed {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(panicked) => panicked.to_string(),
        };
        tracing::error!(class = %id.class, name = %id.name, "a deleted actor's files could not be removed: {trouble}");
    }

    fn unix_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn alarms(&self) -> &Book {
        &self.book
    }

    fn alarm_target(&self, id: &ActorId) -> Target {
        match self.node.classes.get(&id.class) {
            Some(class) if class.code.load().version.hooks().alarm => {}
            _ => return Target::Mute,
        }
        // In a cluster the bucket tells, once the actor is this node's.
        let is_there = self.node.cluster.is_some() || self.database_path(id).exists();
        if is_there { Target::Ready } else { Target::Gone }
    }

    fn alarm_event(&self) -> (ActorEvent, impl Future<Output = bool> + 'static) {
        let (event, answer) = AlarmEvent::new();
        (ActorEvent::Alarm(event), async move { answer.await.is_ok() })
    }

    fn observe(&self, id: &ActorId, happening: Happening<'_>) {
        match &happening {
            Happening::Failed(failure) => {
                tracing::warn!(class = %id.class, name = %id.name, "{failure}; the next event gets a new instance");
            }
            Happening::RolledBack => {
                tracing::warn!(class = %id.class, name = %id.name,
                    "an event ended with a transaction open; it was rolled back");
            }
            Happening::StorageTrouble(trouble) => {
                tracing::error!(class = %id.class, name = %id.name, "storage: {trouble}");
            }
            Happening::Woke(_)
            | Happening::Slept
            | Happening::Dozed
            | Happening::Roused
            | Happening::Alarm { .. }
            | Happening::Turn { .. } => {}
        }
        self.metrics.observe(&id.class, &happening);
    }
}
