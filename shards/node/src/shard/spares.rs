//! Databases of a shard that are made before anybody asks for one, so that a new actor need not wait for a thread that
//! makes its own. Owns how many there are and when; what one is, storage knows.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io::ErrorKind,
    path::{Path, PathBuf},
    rc::Rc,
    sync::mpsc::{self, Receiver, Sender},
};

use wasmkeep_protocol::limits::{SPARES_LOW, SPARES_PER_SHARD};
use wasmkeep_storage::{Config, Database, Spare, Unplaced};

use crate::runtime::OffloadPool;

/// The spares of one shard. There are none until a new actor came, and one that finds none is served without.
pub(super) struct Spares {
    folder: PathBuf,
    config: Config,
    offload: Rc<OffloadPool>,
    ready: RefCell<VecDeque<Spare>>,
    /// Made by a thread and not yet seen; `None`: could not be.
    made: Receiver<Option<Spare>>,
    making: Sender<Option<Spare>>,
    under_way: Cell<usize>,
    /// How many were asked for: each file has a name of its own.
    asked: Cell<u64>,
}

impl Spares {
    /// `folder`: for this shard alone, on the file system of the databases.
    pub(super) fn new(folder: PathBuf, config: Config, offload: Rc<OffloadPool>) -> Self {
        let (making, made) = mpsc::channel();
        Self {
            folder,
            config,
            offload,
            ready: RefCell::default(),
            made,
            making,
            under_way: Cell::new(0),
            asked: Cell::new(0),
        }
    }

    /// A database at `path`, if nothing is there and a spare is at hand.
    pub(super) fn place(&self, path: &Path) -> Option<Database> {
        self.gather();
        let spare = self.ready.borrow_mut().pop_front();
        let placed = spare.and_then(|spare| self.try_to_place(spare, path));
        self.refill();
        placed
    }

    fn try_to_place(&self, spare: Spare, path: &Path) -> Option<Database> {
        let Unplaced { spare, error } = match spare.place(path, &self.config) {
            Ok(database) => return Some(database),
            Err(unplaced) => unplaced,
        };
        if error.kind() == ErrorKind::AlreadyExists {
            self.ready.borrow_mut().push_front(spare);
        } else {
            // The first actor of a class has no folder yet; anything else is told by the opening that follows.
            self.offload.submit(Box::new(move || {
                if let Err(error) = spare.discard() {
                    tracing::warn!("a spare database could not be removed: {error}");
                }
            }));
        }
        None
    }

    /// Takes what the threads have made.
    fn gather(&self) {
        while let Ok(made) = self.made.try_recv() {
            self.under_way.set(self.under_way.get().saturating_sub(1));
            self.ready.borrow_mut().extend(made);
        }
    }

    /// Has spares made when few are left: several at a time, so that most new actors wake no thread.
    fn refill(&self) {
        let there = self.ready.borrow().len() + self.under_way.get();
        if there > SPARES_LOW {
            return;
        }
        let wanted = SPARES_PER_SHARD - there;
        let first = self.asked.get();
        self.asked.set(first + wanted as u64);
        self.under_way.set(self.under_way.get() + wanted);
        let (folder, config, making) = (self.folder.clone(), self.config.clone(), self.making.clone());
        self.offload.submit(Box::new(move || {
            for number in (first..).take(wanted) {
                let made = Spare::make(&folder.join(format!("{number}.db")), &config);
                if let Err(error) = &made {
                    tracing::warn!("no spare database: {error}");
                }
                // A shard that is gone needs none.
                let _ = making.send(made.ok());
            }
        }));
    }
}
