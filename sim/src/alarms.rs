//! The index of alarms as the simulated shard keeps it: one log in the folder of a life, of the format that ships.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    rc::Rc,
};

use wasmkeep_actor::alarm::{Book, Journal, Schedule};
use wasmkeep_protocol::{
    ActorId,
    alarm::{Entry, Wake, read_index},
};
use wasmkeep_storage::{Config, peek_alarm};

use crate::files;

/// The log of a life.
struct Log(PathBuf);

impl Journal for Log {
    fn add(&mut self, entry: &Entry, _: &Schedule) -> io::Result<()> {
        let mut bytes = Vec::new();
        entry.write(&mut bytes);
        OpenOptions::new().create(true).append(true).open(&self.0)?.write_all(&bytes)
    }
}

/// The book of a life over the data in `folder`. `look`: every database is looked at too, as after the machine went
/// down; `forget`: the index is not read.
pub fn open(folder: &Path, cast: &[ActorId], config: &Config, look: bool, forget: bool) -> Rc<Book> {
    let log = folder.join("alarms.log");
    let mut known: BTreeMap<ActorId, Wake> = BTreeMap::new();
    if !forget && let Ok(bytes) = fs::read(&log) {
        for entry in read_index(&bytes).map_while(Result::ok) {
            match entry.wake {
                Some(wake) => drop(known.insert(entry.id, wake)),
                None => drop(known.remove(&entry.id)),
            }
        }
    }
    let book = Rc::new(Book::new(Log(log), known));
    if look {
        for id in cast {
            let kept = peek_alarm(&files::path(folder, id), config).ok().flatten();
            if let Some(wake) = kept.and_then(|kept| kept.alarm.wake()) {
                book.announce(id, wake).expect("the scratch folder can be written");
            }
        }
    }
    book
}
