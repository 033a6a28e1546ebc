//! A look through all databases for alarms, on a thread of its own, while the node serves.
//!
//! An actor that is in memory is passed over: its own shard has told the book when it opened the database. One that
//! wakes just when its database is looked at waits for a moment (see `ShardWorld::open`).

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use wasmkeep_protocol::{ActorClass, ActorId, ActorName, alarm::Wake, placement::shard_of};
use wasmkeep_storage::{OpenError, peek_alarm};

use super::open::Mark;
use crate::state::NodeState;

/// How long an actor whose database was found open has to tell the book of its alarm, at most.
const OPENING_MAX: Duration = Duration::from_secs(5);

/// What a shard is told.
pub(crate) enum Found {
    /// An alarm of one of its actors.
    Alarm(ActorId, Wake),
    /// That was all; to be answered when what came before is in the book.
    End(flume::Sender<()>),
}

/// Starts the look. `shards` are told what is found; `mark` is set when all of it is in their books.
pub(crate) fn scan(node: Arc<NodeState>, shards: Vec<flume::Sender<Found>>, mark: Mark) -> io::Result<()> {
    let look = move || {
        let began = Instant::now();
        let outcome = look(&node, &shards).and_then(|looked| match looked {
            Some(looked) => mark.complete().map(|()| Some(looked)),
            None => Ok(None),
        });
        match outcome {
            Ok(Some(Looked { databases, alarms })) => {
                tracing::info!(databases, alarms, took = ?began.elapsed(), "the index of alarms was made anew");
            }
            // The node stops; the next start looks again.
            Ok(None) => {}
            Err(error) => tracing::error!("the index of alarms could not be made anew: {error}"),
        }
        node.looking_for_alarms.store(false, Ordering::Release);
    };
    std::thread::Builder::new().name("wasmkeep-alarms".to_owned()).spawn(look).map(drop)
}

#[derive(Default)]
struct Looked {
    databases: usize,
    alarms: usize,
}

/// None when the node stopped meanwhile.
fn look(node: &NodeState, shards: &[flume::Sender<Found>]) -> io::Result<Option<Looked>> {
    let mut looked = Looked::default();
    let mut was_open = false;
    for (class, folder) in classes(&node.databases_dir)? {
        for entry in fs::read_dir(folder)? {
            if node.stopping.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "db") {
                continue;
            }
            looked.databases += 1;
            match look_at(node, &class, &path) {
                Ok(None) => {}
                Ok(Some((id, wake))) => {
                    looked.alarms += 1;
                    let shard = shard_of(id.hash(), shards.len());
                    if shards[shard].send(Found::Alarm(id, wake)).is_err() {
                        return Ok(None);
                    }
                }
                Err(OpenError::Locked { .. }) => was_open = true,
                Err(error) => tracing::error!("no alarm could be looked for: {error}"),
            }
        }
    }
    if was_open {
        std::thread::sleep(OPENING_MAX);
    }
    let (done, answers) = flume::bounded(shards.len());
    for shard in shards {
        // One that is gone does not answer.
        let _ = shard.send(Found::End(done.clone()));
    }
    drop(done);
    Ok((answers.iter().count() == shards.len()).then_some(looked))
}

/// The classes there are databases of, served or not.
fn classes(databases: &Path) -> io::Result<Vec<(ActorClass, PathBuf)>> {
    let mut classes = Vec::new();
    match fs::read_dir(databases) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        listed => {
            for entry in listed? {
                let entry = entry?;
                let class = entry.file_name().to_str().and_then(|name| name.parse().ok());
                classes.extend(class.map(|class| (class, entry.path())));
            }
        }
    }
    Ok(classes)
}

fn look_at(node: &NodeState, class: &ActorClass, path: &Path) -> Result<Option<(ActorId, Wake)>, OpenError> {
    let Some(kept) = peek_alarm(path, &node.storage)? else { return Ok(None) };
    let told = path.file_stem().and_then(|stem| stem.to_str()).and_then(ActorName::from_file_stem);
    let name = told.or_else(|| kept.name.as_deref()?.parse().ok());
    let (Some(name), Some(wake)) = (name, kept.alarm.wake()) else {
        tracing::error!("the database {path:?} has an alarm and does not say whose");
        return Ok(None);
    };
    Ok(Some((ActorId { class: class.clone(), name }, wake)))
}
