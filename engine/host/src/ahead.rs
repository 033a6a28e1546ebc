//! Instances made before anybody needs one: finished but for whose they are. Owns what such an instance may not do
//! while it is made; how many there are and when is not its business.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

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
pub(crate) struct Asked(Arc<AtomicBool>);

impl Asked {
    pub(crate) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn has(&self) -> bool {
        self.0.load(Ordering::Relaxed)
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
        let asked = Asked::default();
        let made = self.make(setting, Some(asked.clone())).await;
        // First: a start that was refused what it asked for may have failed for that.
        if asked.has() {
            return Err(AheadError::AsksForActor);
        }
        Ok(SpareInstance(made?))
    }
}
