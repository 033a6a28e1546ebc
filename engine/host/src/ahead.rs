//! Instances made before anybody needs one: finished but for whose they are. Owns what such an instance may not do
//! while it is made; how many there are and when is not its business.

use std::{
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use wasmkeep_storage::{Spare, Template};

use crate::{
    instance::{Instance, InstantiateError, instance_memory_bytes},
    load::Version,
    state::Setting,
};

/// Why an instance could not be made ahead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AheadError {
    /// It cannot be made at all, at least now.
    #[error(transparent)]
    Failed(#[from] InstantiateError),
    /// While it was made it asked for something that only an actor has, or wrote a line: its component has to be made
    /// for one.
    #[error("the component asks for its actor while it is made")]
    AsksForActor,
}

/// Whether an instance that is nobody's asked for its actor. Shared by all that could tell.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    has: Arc<AtomicBool>,
    minds_moment: bool,
}

impl Asked {
    /// Asking for the time or for chance is asking for its actor.
    fn minding_moment() -> Self {
        Self { minds_moment: true, ..Self::default() }
    }

    pub(crate) fn minds_moment(&self) -> bool {
        self.minds_moment
    }

    pub(crate) fn note(&self) {
        self.has.store(true, Ordering::Relaxed);
    }

    fn check(&self) -> Result<(), AheadError> {
        if self.has.load(Ordering::Relaxed) { Err(AheadError::AsksForActor) } else { Ok(()) }
    }
}

/// An instance that is no actor's.
pub struct SpareInstance(Instance);

impl SpareInstance {
    /// Makes it `setting`'s, of which its version and environment were made with.
    #[must_use]
    pub fn claim(self, setting: &Setting) -> Instance {
        let Self(mut instance) = self;
        instance.store.data_mut().claim(setting);
        instance
    }

    /// As [`instance_memory_bytes`].
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        instance_memory_bytes(&self.0)
    }
}

impl Version {
    /// Makes an instance that is no actor's yet. Of `setting` only what its class shares is used: environment, timers
    /// and where blocking work goes.
    ///
    /// # Errors
    /// [`AheadError`].
    pub async fn instantiate_ahead(&self, setting: &Setting) -> Result<SpareInstance, AheadError> {
        self.make_nobodys(setting, &Asked::default()).await.map(SpareInstance)
    }

    async fn make_nobodys(&self, setting: &Setting, asked: &Asked) -> Result<Instance, AheadError> {
        let made = self.make(setting, Some(asked.clone())).await;
        // First: a start that was refused what it asked for may have failed for that.
        asked.check()?;
        Ok(made?)
    }

    /// Runs `on-init` in a database that is no actor's yet, for what it leaves there to be given to actors of the class;
    /// `None` where that cannot be. Whatever comes of it, the files of `spare` stay to be removed.
    ///
    /// # Errors
    /// [`AheadError`].
    pub async fn rehearse_init(
        &self,
        setting: &Setting,
        spare: Spare,
    ) -> Result<Option<Template>, AheadError> {
        let asked = Asked::minding_moment();
        let mut instance = self.make_nobodys(setting, &asked).await?;
        let database = Rc::new(spare.into_database());
        instance.store.data_mut().lend(&database);
        let failed = |reason: String| AheadError::Failed(InstantiateError::Failed(reason));
        let refused = |error: wasmkeep_storage::Error| failed(error.to_string());
        database.begin_init().map_err(refused)?;
        let ran = instance.on_init().await;
        asked.check()?;
        ran.map_err(|error| failed(error.to_string()))?;
        database.commit_init(self.id()).map_err(refused)?;
        // It holds the database too.
        drop(instance);
        let Some(database) = Rc::into_inner(database) else { return Ok(None) };
        Template::of(database, &*setting.offload).await.map_err(refused)
    }
}
