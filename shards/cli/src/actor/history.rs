//! One actor's history as the bucket lists it.

use std::collections::{BTreeSet, HashSet};

use tokio::time::sleep;
use wasmkeep_bucket::{Bucket, Key};
use wasmkeep_protocol::{
    history::{self, Broken, HistoryFile, Listed, Plan, Point, Timeline},
    limits::RESTORE_PAUSES,
    object_keys,
};

use crate::{
    args::ActorPath,
    bucket,
    exit::{Failure, Status},
};

/// The objects below an actor's folder, and what they give.
#[derive(Debug)]
pub struct History {
    folder: String,
    /// By generation, then transaction.
    pub files: Vec<Listed>,
    /// How many objects of somebody else lie among them.
    pub others: usize,
    /// The files that give the latest state.
    pub plan: Result<Option<Plan>, Broken>,
    /// The states that can be had.
    pub timeline: Timeline,
}

/// What a file of a history is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    /// A restore of the latest state reads it.
    Restore,
    /// It leads to an earlier state, or holds one.
    Earlier,
    /// No state needs it: a late upload of an owner that was replaced, or one whose predecessors were collected.
    Unused,
}

impl History {
    /// Lists the history of an actor. One that looks broken is listed again before that is believed: a listing that
    /// overlaps an owner's collection may look so.
    ///
    /// # Errors
    /// The listing failed, or there is nothing of this actor.
    pub async fn look<B: Bucket>(bucket: &B, actor: &ActorPath) -> Result<Self, Failure> {
        let mut history = Self::look_once(bucket, actor).await?;
        for pause in RESTORE_PAUSES {
            if history.plan.is_ok() {
                break;
            }
            sleep(pause).await;
            history = Self::look_once(bucket, actor).await?;
        }
        if history.files.is_empty() {
            let sentence = format!(
                "the bucket has no history of {actor}: check the name, which is TENANT/CLASS/NAME, and the bucket's \
                 prefix"
            );
            return Err(Failure::new(Status::NotFound, sentence));
        }
        Ok(history)
    }

    async fn look_once<B: Bucket>(bucket: &B, actor: &ActorPath) -> Result<Self, Failure> {
        let folder = object_keys::history_folder(&actor.tenant, &actor.actor);
        let listed = bucket::list(bucket, &folder).await;
        let listed =
            listed.map_err(|error| bucket::failed(format_args!("listing the history of {actor}"), error))?;
        let found = listed.entries.len() + listed.unnamed;
        let parsed = listed.entries.iter().filter_map(|entry| {
            let file = object_keys::parse_history_file(&folder, entry.key.as_str())?;
            Some(Listed { file, size_bytes: entry.size, modified_ms: entry.modified_ms })
        });
        let mut files: Vec<Listed> = parsed.collect();
        files.sort_by_key(|listed| listed.file);
        let names = || files.iter().map(|listed| listed.file);
        let (plan, timeline) = (history::restore(names()), history::timeline(names()));
        Ok(Self { folder, others: found - files.len(), plan, timeline, files })
    }

    /// The files that lead to a state, none of `damaged` among them.
    pub fn plan_to(&self, point: Point, damaged: &BTreeSet<HistoryFile>) -> Option<Plan> {
        let files = self.files.iter().map(|listed| listed.file);
        history::lead_to(files.filter(|file| !damaged.contains(file)), point)
    }

    /// The state nearest to the one at `at` that can be had without the files of `damaged`, earlier ones first; a state
    /// of the actor's own past, and never one that a replaced owner uploaded late.
    pub fn nearest(&self, at: usize, damaged: &BTreeSet<HistoryFile>) -> Option<Point> {
        let states = self.timeline.states();
        let (before, after) = states.split_at(at.min(states.len()));
        let points = before.iter().rev().chain(after).map(|state| state.point);
        points.into_iter().find(|point| self.plan_to(*point, damaged).is_some())
    }

    /// The key of one of its files.
    ///
    /// # Errors
    /// Never for a file that was listed.
    pub fn key(&self, file: &HistoryFile) -> Result<Key, Failure> {
        let key = object_keys::history_file(&self.folder, file);
        key.parse().map_err(|error| Failure::new(Status::Internal, error))
    }

    /// What each file is there for.
    pub fn uses(&self) -> impl Fn(&HistoryFile) -> Use {
        let restored: HashSet<HistoryFile> = match &self.plan {
            Ok(Some(plan)) => plan.files().collect(),
            Ok(None) | Err(_) => HashSet::new(),
        };
        let leading: HashSet<HistoryFile> =
            self.timeline.states().iter().flat_map(history::State::files).collect();
        move |file| match file {
            file if restored.contains(file) => Use::Restore,
            file if leading.contains(file) => Use::Earlier,
            _ => Use::Unused,
        }
    }

    /// Number and bytes of some files.
    pub fn sum<'a>(files: impl IntoIterator<Item = &'a Listed>) -> (usize, u64) {
        files.into_iter().fold((0, 0), |(files, bytes), listed| (files + 1, bytes + listed.size_bytes))
    }

    /// The bytes of a listed file.
    pub fn size(&self, file: &HistoryFile) -> u64 {
        let at = self.files.binary_search_by_key(file, |listed| listed.file);
        at.map_or(0, |at| self.files[at].size_bytes)
    }
}
