//! What a shard offers its actors: the executor, the offload threads, databases, instances.

use std::{
    cell::{OnceCell, RefCell},
    collections::HashMap,
    path::PathBuf,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use wasmkeep_actor::{Happening, Refusal, Started, World};
use wasmkeep_host::{Calls, Identity, InstantiateError, Setting};
use wasmkeep_protocol::{
    ActorId, close,
    limits::{SOCKET_CLOSE_WITHIN, SOCKET_MESSAGE_BYTES_MAX, SOCKET_QUEUE_BYTES_MAX},
};
use wasmkeep_storage::{Database, Offload};

use super::{
    guest::{MemoryMeter, MeteredInstance},
    replica::{self, Replica},
};
use crate::{
    metrics::ShardMetrics,
    runtime::{Label, OffloadPool, ShardContext},
    socket::{Rules, Sockets},
    state::NodeState,
};

/// One shard's side of its actors.
pub(crate) struct ShardWorld {
    pub(crate) node: Arc<NodeState>,
    pub(crate) context: ShardContext,
    pub(crate) offload: Rc<OffloadPool>,
    pub(crate) metrics: Rc<ShardMetrics>,
    pub(crate) memory: Rc<MemoryMeter>,
    /// Set once the shard it belongs to is there.
    pub(crate) calls: OnceCell<Rc<dyn Calls>>,
    pub(crate) sockets: Sockets,
    /// Of the actors that are open, on a node with a bucket.
    replicas: RefCell<HashMap<ActorId, Rc<Replica>>>,
}

impl ShardWorld {
    pub(crate) fn new(node: Arc<NodeState>, context: ShardContext, metrics: Rc<ShardMetrics>) -> Self {
        let offload = Rc::new(node.offload.clone());
        let rules = Rules {
            message_bytes_max: SOCKET_MESSAGE_BYTES_MAX,
            queue_bytes_max: SOCKET_QUEUE_BYTES_MAX,
            ping_after: node.limits.socket_ping_after,
            close_within: SOCKET_CLOSE_WITHIN,
        };
        let sockets = Sockets::new(rules, context.sleeper.clone(), node.metrics.sockets(context.index));
        Self {
            node,
            context,
            offload,
            metrics,
            memory: Rc::default(),
            calls: OnceCell::new(),
            sockets,
            replicas: RefCell::default(),
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

    fn setting(
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
            calls: self.calls.get().cloned(),
            timers: self.node.timers.handle(),
            outbound: Some(self.node.egress.for_instance()),
        }
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

impl World for ShardWorld {
    type Guest = MeteredInstance;

    fn now(&self) -> Duration {
        self.node.now()
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> {
        self.context.sleeper.sleep(duration)
    }

    fn spawn(&self, id: &ActorId, task: impl Future<Output = ()> + 'static) {
        let label = Label::new(&format!("actor {id}"));
        glommio::spawn_local(self.context.pulse.hold(label, task)).detach();
    }

    fn offload(&self) -> &dyn Offload {
        &*self.offload
    }

    async fn open(&self, id: &ActorId) -> Result<Database, Refusal> {
        if let Some(cluster) = &self.node.cluster {
            let path = self.database_path(id);
            let opened = replica::open(
                cluster,
                &self.offload,
                id,
                &path,
                &self.node.storage,
                &self.node.metrics.cluster,
            )
            .await;
            if let Err(refusal) = &opened {
                tracing::warn!(class = %id.class, name = %id.name, "{refusal}");
            }
            let (database, replica) = opened?;
            self.replicas.borrow_mut().insert(id.clone(), replica);
            return Ok(database);
        }
        let opened = Database::begin_open(&*self.offload, &self.database_path(id), &self.node.storage);
        opened.map_err(|error| {
            tracing::error!(class = %id.class, name = %id.name, "{error}");
            Refusal::from(&error)
        })
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
        let identity = Arc::new(Identity {
            tenant: self.node.tenant.to_string(),
            class: id.class.to_string(),
            name: id.name.to_string(),
            node: self.node.node_id.to_string(),
            generation: self.replica(id).map_or(0, |replica| replica.generation()),
            version: version.clone(),
        });
        let sockets = Rc::new(self.sockets.of(id)) as Rc<dyn wasmkeep_host::Sockets>;
        let setting = self.setting(identity, Some(Rc::clone(database)), Some(sockets), &code.env);
        let started = self.metered(code.version.instantiate(setting).await);
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
            replica.settle(&database).await;
        }
        database.close(&*self.offload).await;
        if let Some(replica) = replica
            && !erasing
        {
            self.replicas.borrow_mut().remove(id);
            replica.finish().await;
        }
    }

    async fn erase(&self, id: &ActorId) {
        let replica = self.replicas.borrow_mut().remove(id);
        if let Some(replica) = replica
            && let Err(error) = replica.delete().await
        {
            // As for a plain write whose node died: the next request finds the actor as it was (R-DEL-1).
            tracing::error!(class = %id.class, name = %id.name, "a deletion may not be in the bucket: {error}");
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
            | Happening::Turn { .. } => {}
        }
        self.metrics.observe(&id.class, &happening);
    }
}
