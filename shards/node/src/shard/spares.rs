//! Databases of a shard that are made before anybody asks for one, so that a new actor need not wait for a thread that
//! makes its own. Owns how many there are and when; what one is, storage knows.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    rc::Rc,
    sync::{
        Arc,
        mpsc::{self, Receiver, SendError, Sender},
    },
};

use wasmkeep_protocol::limits::{SPARES_LOW, SPARES_PER_SHARD, TEMPLATES_PER_SHARD};
use wasmkeep_storage::{Config, Database, Spare, Template, Unplaced};

use crate::runtime::OffloadPool;

/// The spares of one shard. There are none until a new actor came, and one that finds none is served without.
pub(super) struct Spares {
    folder: PathBuf,
    config: Config,
    offload: Rc<OffloadPool>,
    /// Empty databases.
    blank: Stock,
    /// What `on-init` of some class has run in, the one used last at the end.
    begun: RefCell<Vec<Rc<Stock>>>,
    /// How many were asked for: each file has a name of its own.
    asked: Cell<u64>,
}

/// Spares of one kind.
struct Stock {
    template: Option<Arc<Template>>,
    ready: RefCell<VecDeque<Spare>>,
    /// Made by a thread and not yet seen; `None`: could not be.
    made: Receiver<Option<Spare>>,
    making: Sender<Option<Spare>>,
    under_way: Cell<usize>,
    /// An actor came, and few are left.
    is_short: Cell<bool>,
}

impl Spares {
    /// `folder`: for this shard alone, on the file system of the databases.
    pub(super) fn new(folder: PathBuf, config: Config, offload: Rc<OffloadPool>) -> Self {
        let (blank, begun, asked) = (Stock::new(None), RefCell::default(), Cell::new(0));
        Self { folder, config, offload, blank, begun, asked }
    }

    /// A database at `path`, if nothing is there and a spare is at hand: one like `template` where there is one.
    pub(super) fn place(&self, path: &Path, template: Option<&Arc<Template>>) -> Option<Database> {
        let begun = template.map(|template| self.stock_of(template));
        let wanted = begun.as_deref().unwrap_or(&self.blank);
        let at_hand = [wanted, &self.blank].into_iter().find_map(|stock| Some((stock, stock.take()?)));
        let placed = at_hand.and_then(|(stock, spare)| self.try_to_place(spare, stock, path));
        wanted.is_short.set(wanted.count() <= SPARES_LOW);
        placed
    }

    /// Whether [`Spares::refill`] is called for.
    pub(super) fn is_short(&self) -> bool {
        self.blank.is_short.get() || self.begun.borrow().iter().any(|stock| stock.is_short.get())
    }

    /// Has those made of which few are left.
    pub(super) fn refill(&self) {
        let begun = self.begun.borrow();
        let stocks = begun.iter().map(Rc::as_ref).chain([&self.blank]);
        stocks.filter(|stock| stock.is_short.take()).for_each(|stock| self.make(stock));
    }

    /// An empty one, if one is at hand.
    pub(super) fn take_blank(&self) -> Option<Spare> {
        self.blank.take()
    }

    /// Lets go of those that are like what nobody holds any more.
    pub(super) fn sweep(&self) {
        let is_wanted = |stock: &Rc<Stock>| {
            stock.template.as_ref().is_some_and(|template| Arc::strong_count(template) > 1)
        };
        let gone: Vec<_> = self.begun.borrow_mut().extract_if(.., |stock| !is_wanted(stock)).collect();
        gone.into_iter().for_each(|stock| self.discard_all(&stock));
    }

    /// Those like `template`, of which the shard keeps a few kinds.
    fn stock_of(&self, template: &Arc<Template>) -> Rc<Stock> {
        let mut begun = self.begun.borrow_mut();
        let is_its =
            |stock: &Rc<Stock>| stock.template.as_ref().is_some_and(|its| Arc::ptr_eq(its, template));
        let stock = match begun.iter().position(is_its) {
            Some(at) => begun.remove(at),
            None => Rc::new(Stock::new(Some(Arc::clone(template)))),
        };
        if begun.len() == TEMPLATES_PER_SHARD {
            self.discard_all(&begun.remove(0));
        }
        begun.push(Rc::clone(&stock));
        stock
    }

    fn discard_all(&self, stock: &Stock) {
        stock.gather();
        stock.ready.take().into_iter().for_each(|spare| self.discard(spare));
    }

    fn discard(&self, spare: Spare) {
        self.offload.submit(Box::new(move || told(spare.discard())));
    }

    /// Removes the files of a spare that is not open any more.
    pub(super) fn remove(&self, path: PathBuf) {
        self.offload.submit(Box::new(move || told(wasmkeep_storage::remove(&path))));
    }

    /// `stock`: where it comes from.
    fn try_to_place(&self, spare: Spare, stock: &Stock, path: &Path) -> Option<Database> {
        let Unplaced { spare, error } = match spare.place(path, &self.config) {
            Ok(database) => return Some(database),
            Err(unplaced) => unplaced,
        };
        if error.kind() == ErrorKind::AlreadyExists {
            stock.ready.borrow_mut().push_front(spare);
        } else {
            // The first actor of a class has no folder yet; anything else is told by the opening that follows.
            self.discard(spare);
        }
        None
    }

    /// Several at a time, so that most new actors wake no thread.
    fn make(&self, stock: &Stock) {
        let wanted = SPARES_PER_SHARD.saturating_sub(stock.count());
        let first = self.asked.get();
        self.asked.set(first + wanted as u64);
        stock.under_way.set(stock.under_way.get() + wanted);
        let (folder, config, making) = (self.folder.clone(), self.config.clone(), stock.making.clone());
        let template = stock.template.clone();
        self.offload.submit(Box::new(move || {
            for number in (first..).take(wanted) {
                let path = folder.join(format!("{number}.db"));
                let made = match &template {
                    Some(template) => Spare::make_like(template, &path, &config),
                    None => Spare::make(&path, &config),
                };
                if let Err(error) = &made {
                    tracing::warn!("no spare database: {error}");
                }
                // Nobody waits for those of a kind that was let go.
                if let Err(SendError(Some(unwanted))) = making.send(made.ok()) {
                    told(unwanted.discard());
                }
            }
        }));
    }
}

/// Nobody waits for a removal: the log tells of one that failed.
fn told(removed: io::Result<()>) {
    if let Err(error) = removed {
        tracing::warn!("a spare database could not be removed: {error}");
    }
}

impl Stock {
    fn new(template: Option<Arc<Template>>) -> Self {
        let (making, made) = mpsc::channel();
        Self {
            template,
            ready: RefCell::default(),
            made,
            making,
            under_way: Cell::new(0),
            is_short: Cell::new(false),
        }
    }

    fn take(&self) -> Option<Spare> {
        self.gather();
        self.ready.borrow_mut().pop_front()
    }

    /// With those that are being made.
    fn count(&self) -> usize {
        self.ready.borrow().len() + self.under_way.get()
    }

    /// Takes what the threads have made.
    fn gather(&self) {
        while let Ok(made) = self.made.try_recv() {
            self.under_way.set(self.under_way.get().saturating_sub(1));
            self.ready.borrow_mut().extend(made);
        }
    }
}
