//! One shard's log of its alarms: appended to, and now and then begun anew in a second file that takes over what
//! still counts, a few records with each write, so that no write is long.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use wasmkeep_actor::alarm::{Journal, Schedule};
use wasmkeep_protocol::{ActorId, alarm::Entry};

/// Records a log has beyond twice those that count before it is begun anew.
const RECORDS_SPARE: usize = 4096;

/// Records that the new log takes over with each write.
const COPIES: usize = 4;

/// A log that is being replaced.
struct Old {
    path: PathBuf,
    /// The last actor the new log has taken over.
    copied: Option<ActorId>,
}

/// The log of one shard.
pub(crate) struct Index {
    folder: PathBuf,
    shard: usize,
    generation: u64,
    file: File,
    /// Length of the file up to the last whole record.
    bytes: u64,
    records: usize,
    old: Option<Old>,
    records_spare: usize,
}

/// The file of a shard's log; logs of one shard are read in the order of their generations.
pub(super) fn path(folder: &Path, shard: usize, generation: u64) -> PathBuf {
    folder.join(format!("{shard}-{generation}.log"))
}

/// Shard and generation of a log.
pub(super) fn parse(file_name: &str) -> Option<(usize, u64)> {
    let (shard, generation) = file_name.strip_suffix(".log")?.split_once('-')?;
    Some((shard.parse().ok()?, generation.parse().ok()?))
}

impl Index {
    /// A new log in `folder` that begins with `entries`.
    pub(super) fn create(folder: &Path, shard: usize, entries: &[Entry]) -> io::Result<Self> {
        let mut bytes = Vec::new();
        for entry in entries {
            entry.write(&mut bytes);
        }
        let mut file = new_file(&path(folder, shard, 0))?;
        file.write_all(&bytes)?;
        Ok(Self {
            folder: folder.to_owned(),
            shard,
            generation: 0,
            file,
            bytes: bytes.len() as u64,
            records: entries.len(),
            old: None,
            records_spare: RECORDS_SPARE,
        })
    }

    fn begin_anew(&mut self) -> io::Result<()> {
        let file = new_file(&path(&self.folder, self.shard, self.generation + 1))?;
        let old = path(&self.folder, self.shard, self.generation);
        self.file = file;
        self.generation += 1;
        (self.bytes, self.records) = (0, 0);
        self.old = Some(Old { path: old, copied: None });
        Ok(())
    }

    /// Adds what the next few actors of the old log have to `bytes`; the last of them, and whether it was the last
    /// of all.
    fn copy(&self, schedule: &Schedule, bytes: &mut Vec<u8>) -> Option<(Option<ActorId>, usize, bool)> {
        let old = self.old.as_ref()?;
        let (mut last, mut count) = (None, 0);
        for (id, wake) in schedule.behind(old.copied.as_ref()).take(COPIES) {
            Entry { id: id.clone(), wake: Some(wake) }.write(bytes);
            (last, count) = (Some(id.clone()), count + 1);
        }
        Some((last, count, count < COPIES))
    }

    /// Adds whole records, or nothing.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(bytes) {
            // A record that is there in part would hide those behind it.
            self.file.set_len(self.bytes)?;
            return Err(error);
        }
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

fn new_file(path: &Path) -> io::Result<File> {
    // What a start that did not get far may have left is of no use.
    let _ = fs::remove_file(path);
    File::options().create_new(true).append(true).open(path)
}

impl Journal for Index {
    fn add(&mut self, entry: &Entry, schedule: &Schedule) -> io::Result<()> {
        if self.old.is_none() && self.records > self.records_spare + 2 * schedule.len() {
            // Without a new file the log only grows.
            if let Err(error) = self.begin_anew() {
                tracing::warn!("the index of alarms cannot be begun anew: {error}");
                self.records = 0;
            }
        }
        let mut bytes = Vec::new();
        let copied = self.copy(schedule, &mut bytes);
        // Behind what is taken over, which may say something else of the same actor.
        entry.write(&mut bytes);
        self.append(&bytes)?;
        self.records += 1;
        let Some((last, count, is_all)) = copied else { return Ok(()) };
        self.records += count;
        if is_all {
            if let Some(old) = self.old.take() {
                // Left behind, it is read before the new one and changes nothing.
                let _ = fs::remove_file(old.path);
            }
        } else if let Some(old) = &mut self.old {
            old.copied = last;
        }
        Ok(())
    }
}

#[cfg(test)]
impl Index {
    /// Makes it begin anew after `records` records.
    pub(super) fn impatient(mut self, records: usize) -> Self {
        self.records_spare = records;
        self
    }
}
