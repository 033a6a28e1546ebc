//! The index when a node starts: what it says is read, and written out again for the shards there are now.
//!
//! `current` names the folder of logs in force and the boot in which they are complete. The new logs are whole
//! before `current` names them, so a start that is cut short is simply done again.

use std::{
    collections::HashMap,
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use wasmkeep_protocol::{
    ActorId,
    alarm::{Entry, Wake, read_index},
    placement::shard_of,
};

use super::index::{self, Index};

/// The index of a node that starts.
pub(crate) struct Opened {
    /// For each shard its log and what it says.
    pub(crate) shards: Vec<(Index, Vec<(ActorId, Wake)>)>,
    /// Whether it can be trusted. If not, every database must be looked at, and [`Opened::mark`] called then.
    pub(crate) is_complete: bool,
    /// Says that the index is complete from now on.
    pub(crate) mark: Mark,
}

/// The file that names the logs in force.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    folder: PathBuf,
    epoch: u64,
    boot: Option<String>,
}

impl Mark {
    /// Says that the index is complete, in this boot of the machine.
    pub(crate) fn complete(&self) -> io::Result<()> {
        self.write(self.boot.as_deref())
    }

    fn write(&self, complete_in: Option<&str>) -> io::Result<()> {
        let new = self.folder.join("current.new");
        fs::write(&new, format!("{}\n{}\n", self.epoch, complete_in.unwrap_or("-")))?;
        fs::rename(new, self.folder.join("current"))
    }

    /// The logs in force, and the boot in which they are complete.
    fn read(folder: &Path) -> io::Result<Option<(u64, String)>> {
        let text = match fs::read_to_string(folder.join("current")) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData) => {
                return Ok(None);
            }
            other => other?,
        };
        let mut lines = text.lines();
        let (epoch, boot) = (lines.next().and_then(|line| line.parse().ok()), lines.next());
        Ok(epoch.zip(boot.map(str::to_owned)))
    }
}

/// Which boot of the machine this is; two equal answers mean that it did not go down in between.
fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|boot| !boot.is_empty())
}

/// Opens the index in `folder` for a node of so many shards.
pub(crate) fn open(folder: &Path, shards: usize) -> io::Result<Opened> {
    open_in(folder, shards, boot_id())
}

pub(super) fn open_in(folder: &Path, shards: usize, boot: Option<String>) -> io::Result<Opened> {
    fs::create_dir_all(folder)?;
    let current = Mark::read(folder)?;
    let (alarms, is_whole) = match &current {
        Some((epoch, _)) => read_logs(&folder.join(epoch.to_string()))?,
        None => (HashMap::new(), false),
    };
    let same_boot = current.is_some_and(|(_, complete_in)| Some(complete_in) == boot);
    let is_complete = is_whole && same_boot;
    let epochs = epochs(folder)?;
    let mark =
        Mark { folder: folder.to_owned(), epoch: epochs.iter().max().map_or(1, |last| last + 1), boot };
    let logs = folder.join(mark.epoch.to_string());
    fs::create_dir(&logs)?;
    let mut parts: Vec<Vec<(ActorId, Wake)>> = vec![Vec::new(); shards];
    for (id, wake) in alarms {
        parts[shard_of(id.hash(), shards)].push((id, wake));
    }
    let mut opened = Vec::with_capacity(shards);
    for (shard, known) in parts.into_iter().enumerate() {
        let entries: Vec<_> =
            known.iter().map(|(id, wake)| Entry { id: id.clone(), wake: Some(*wake) }).collect();
        opened.push((Index::create(&logs, shard, &entries)?, known));
    }
    mark.write(mark.boot.as_deref().filter(|_| is_complete))?;
    for epoch in epochs {
        fs::remove_dir_all(folder.join(epoch.to_string()))?;
    }
    Ok(Opened { shards: opened, is_complete, mark })
}

fn epochs(folder: &Path) -> io::Result<Vec<u64>> {
    let mut epochs = Vec::new();
    for entry in fs::read_dir(folder)? {
        epochs.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u64>().ok()));
    }
    Ok(epochs)
}

/// What the logs in `folder` say together, and whether all of them could be read to their end.
fn read_logs(folder: &Path) -> io::Result<(HashMap<ActorId, Wake>, bool)> {
    let mut logs = Vec::new();
    let (mut alarms, mut is_whole) = (HashMap::new(), true);
    match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => is_whole = false,
        listed => {
            for entry in listed? {
                let entry = entry?;
                let parsed = entry.file_name().to_str().and_then(index::parse);
                logs.extend(parsed.map(|place| (place, entry.path())));
            }
        }
    }
    logs.sort();
    for (_, path) in logs {
        for entry in read_index(&fs::read(&path)?) {
            match entry {
                Ok(Entry { id, wake: Some(wake) }) => drop(alarms.insert(id, wake)),
                Ok(Entry { id, wake: None }) => drop(alarms.remove(&id)),
                Err(damaged) => {
                    tracing::warn!("{path:?}: {damaged}; every database is looked at instead");
                    is_whole = false;
                }
            }
        }
    }
    Ok((alarms, is_whole))
}
