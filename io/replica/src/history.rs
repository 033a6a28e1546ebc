//! An actor's history as the bucket lists it now.

use std::collections::BTreeSet;

use wasmkeep_bucket::{Bucket, Entry, ListError, Listing, ReadError};
use wasmkeep_protocol::{
    history::{self, Broken, HistoryFile, Listed, Plan, Point},
    limits::{LISTING_SILENCE, RESTORE_PAUSES},
    object_keys,
};

use wasmkeep_runtime::{Runtime, within_moving};

/// Listings of a history that cannot be restored as listed, before that is believed: one that overlaps an owner's
/// collection may show neither the old files nor the snapshot that took their place.
const LOOKS_MAX: usize = 3;

/// What the bucket has of one actor.
#[derive(Debug, Clone, Default)]
pub struct History {
    files: Vec<Listed>,
    plan: Option<Plan>,
}

/// Why a history cannot be known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// The listing ended in an error.
    #[error("listing the actor's history: {0}")]
    List(#[from] ListError),
    /// The bucket sent no key for too long.
    #[error("listing the actor's history: the bucket sent no key for {LISTING_SILENCE:?}")]
    Silent,
    /// What is listed does not lead to the actor's latest state.
    #[error("the actor's history is broken: {0}")]
    Broken(#[from] Broken),
}

impl History {
    /// The state it leads to; `None` when there is none.
    #[must_use]
    pub fn end(&self) -> Option<Point> {
        self.plan.as_ref().map(Plan::end)
    }

    /// The files that lead to it.
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// Whether the actor was deleted and has not come back.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.end().is_some_and(|end| end.is_empty())
    }

    /// Uploads after the last snapshot.
    #[must_use]
    pub fn uploads_since_snapshot(&self) -> u64 {
        self.plan.as_ref().map_or(0, |plan| plan.changes().len() as u64)
    }

    /// The newest hold that wrote any of it; 0 for none.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.files.iter().map(|listed| listed.file.generation()).max().unwrap_or(0)
    }

    /// Everything listed.
    #[must_use]
    pub fn files(&self) -> &[Listed] {
        &self.files
    }

    /// The files that lead to its latest state without those of `damaged`, where there are such.
    pub(crate) fn plan_around(&self, damaged: &BTreeSet<HistoryFile>) -> Option<Plan> {
        if damaged.is_empty() {
            return self.plan.clone();
        }
        history::restore_around(self.files.iter().map(|listed| listed.file), damaged)
    }

    /// The same history, of which `plan` was restored.
    pub(crate) fn restored_by(self, plan: Plan) -> Self {
        Self { plan: Some(plan), ..self }
    }

    /// Bytes of one of its files.
    pub(crate) fn size_of(&self, file: &history::HistoryFile) -> u64 {
        self.files.iter().find(|listed| listed.file == *file).map_or(0, |listed| listed.size_bytes)
    }
}

/// Lists the history below `folder`, of [`object_keys::history_folder`].
///
/// # Errors
/// [`HistoryError`]; a broken history was listed more than once.
pub async fn look<B: Bucket, S: Runtime>(
    bucket: &B,
    runtime: &S,
    folder: &str,
) -> Result<History, HistoryError> {
    let mut looks = 0;
    loop {
        looks += 1;
        let files = list(bucket, runtime, folder).await?;
        match history::restore(files.iter().map(|listed| listed.file)) {
            Ok(plan) => return Ok(History { files, plan }),
            Err(broken) if looks == LOOKS_MAX => return Err(broken.into()),
            Err(_) => runtime.sleep(RESTORE_PAUSES[0]).await,
        }
    }
}

/// Every history file listed, however many there are: it ends only when no key comes for a while.
pub(crate) async fn list<B: Bucket, S: Runtime>(
    bucket: &B,
    runtime: &S,
    folder: &str,
) -> Result<Vec<Listed>, HistoryError> {
    let mut listing = Listing::new(bucket, folder);
    let mut files = Vec::new();
    let mut heard = runtime.now();
    let mut last_error = None;
    loop {
        let silent_at = heard + LISTING_SILENCE;
        let left = || silent_at.saturating_sub(runtime.now());
        match within_moving(runtime, left, listing.next_page()).await {
            Some(Ok(Some(page))) => {
                files.extend(page.into_iter().filter_map(|entry| listed(folder, entry)));
                (heard, last_error) = (runtime.now(), None);
            }
            Some(Ok(None)) => return Ok(files),
            Some(Err(ListError::Read(error))) if error.passes() => {
                last_error = Some(ListError::Read(error));
                within_moving(runtime, left, runtime.sleep(RESTORE_PAUSES[0])).await;
            }
            Some(Err(error)) => return Err(error.into()),
            None => return Err(last_error.map_or(HistoryError::Silent, HistoryError::List)),
        }
    }
}

fn listed(folder: &str, entry: Entry) -> Option<Listed> {
    let file = object_keys::parse_history_file(folder, entry.key.as_str())?;
    Some(Listed { file, size_bytes: entry.size, modified_ms: entry.modified_ms })
}

impl HistoryError {
    /// Whether the bucket may answer better later; otherwise data would be lost.
    #[must_use]
    pub fn passes(&self) -> bool {
        match self {
            Self::Silent | Self::List(ListError::Fault(_) | ListError::Read(ReadError::Failed(_))) => true,
            Self::List(ListError::Read(error)) => error.passes(),
            Self::Broken(_) => false,
        }
    }
}
