//! Instances of a shard that are made before an actor needs one, and what `on-init` leaves in the databases of a class.
//! Owns how many there are, of which classes and until when; what one is, the host knows.

use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use wasmkeep_host::{AheadError, Setting, SpareInstance};
use wasmkeep_protocol::{
    ActorClass,
    limits::{INSTANCES_AHEAD, INSTANCES_AHEAD_IDLE, INSTANCES_AHEAD_LOW, INSTANCES_AHEAD_PER_SHARD},
};
use wasmkeep_storage::{Spare, Template};

use super::guest::{MemoryMeter, MeteredInstance, Share};
use crate::state::Code;

/// Of the classes of which more than one actor started lately.
pub(super) struct Instances {
    stocks: RefCell<HashMap<ActorClass, Stock>>,
    meter: Rc<MemoryMeter>,
}

struct Stock {
    /// What its instances are made of.
    code: Arc<Code>,
    /// The oldest first.
    ready: VecDeque<(SpareInstance, Share)>,
    is_making: bool,
    /// Its component cannot be made ahead.
    is_barred: bool,
    template: Prospect,
    used: Duration,
}

/// What is known of a class's `on-init`.
enum Prospect {
    /// It has not run but for actors.
    Untried,
    /// It left this, for each actor alike.
    Known(Arc<Template>),
    /// There is none, or it has to run for each actor.
    None,
}

impl Instances {
    pub(super) fn new(meter: Rc<MemoryMeter>) -> Self {
        Self { stocks: RefCell::default(), meter }
    }

    /// An instance of `code` for an actor of the class that starts now, if one is at hand.
    pub(super) fn take(
        &self,
        class: &ActorClass,
        code: &Arc<Code>,
        setting: &Setting,
        now: Duration,
    ) -> Option<MeteredInstance> {
        let (spare, share) = self.stocks.borrow_mut().get_mut(class)?.take(code, now)?;
        Some(MeteredInstance::of(spare.claim(setting), share))
    }

    /// What `on-init` of `code` leaves in the database of a new actor, if that is known.
    pub(super) fn template(&self, class: &ActorClass, code: &Arc<Code>) -> Option<Arc<Template>> {
        let stocks = self.stocks.borrow();
        let stock = stocks.get(class).filter(|stock| Arc::ptr_eq(&stock.code, code))?;
        if let Prospect::Known(template) = &stock.template { Some(Arc::clone(template)) } else { None }
    }

    /// What `on-init` is to be tried of without an actor, and the database for it, if there is one. It is tried once:
    /// [`Instances::rehearsed`] says what came of it.
    pub(super) fn to_rehearse(
        &self,
        class: &ActorClass,
        database: impl FnOnce() -> Option<Spare>,
    ) -> Option<(Arc<Code>, Spare)> {
        let mut stocks = self.stocks.borrow_mut();
        let stock = stocks.get_mut(class)?;
        if !matches!(stock.template, Prospect::Untried) || !stock.code.version.hooks().init {
            return None;
        }
        let spare = database()?;
        stock.template = Prospect::None;
        Some((Arc::clone(&stock.code), spare))
    }

    /// `on-init` of `code` left this for any actor.
    pub(super) fn rehearsed(&self, class: &ActorClass, code: &Arc<Code>, left: Template) {
        if let Some(stock) = self.stocks.borrow_mut().get_mut(class)
            && Arc::ptr_eq(&stock.code, code)
        {
            stock.template = Prospect::Known(Arc::new(left));
        }
    }

    /// An actor of the class started. Whether instances are to be made now, which [`Instances::next`] and
    /// [`Instances::made`] go on with.
    pub(super) fn note_start(&self, class: &ActorClass, code: &Arc<Code>, now: Duration) -> bool {
        let mut stocks = self.stocks.borrow_mut();
        let Some(stock) = stocks.get_mut(class) else {
            // The first for a long time: it may be the only one.
            stocks.insert(class.clone(), Stock::new(code, now));
            return false;
        };
        let wanted = !stock.is_making && !stock.is_barred && stock.ready.len() <= INSTANCES_AHEAD_LOW;
        stock.is_making |= wanted;
        wanted
    }

    /// What the next instance is to be made of; `None`: there are enough.
    pub(super) fn next(&self, class: &ActorClass) -> Option<Arc<Code>> {
        let mut stocks = self.stocks.borrow_mut();
        let all: usize = stocks.values().map(|stock| stock.ready.len()).sum();
        let stock = stocks.get_mut(class)?;
        if !stock.is_barred && stock.ready.len() < INSTANCES_AHEAD && all < INSTANCES_AHEAD_PER_SHARD {
            return Some(Arc::clone(&stock.code));
        }
        stock.is_making = false;
        None
    }

    /// What became of the making of one. `None`: it took too long. Whether to go on.
    pub(super) fn made(
        &self,
        class: &ActorClass,
        code: &Arc<Code>,
        made: Option<Result<SpareInstance, AheadError>>,
    ) -> bool {
        let mut stocks = self.stocks.borrow_mut();
        let Some(stock) = stocks.get_mut(class) else { return false };
        if !Arc::ptr_eq(&stock.code, code) {
            return true;
        }
        match made {
            Some(Ok(spare)) => {
                let mut share = Share::new(Rc::clone(&self.meter));
                share.set(spare.memory_bytes());
                stock.ready.push_back((spare, share));
                return true;
            }
            // The start of an actor tells what is wrong.
            Some(Err(AheadError::Failed(_))) => {}
            Some(Err(AheadError::AsksForActor)) | None => stock.is_barred = true,
        }
        stock.is_making = false;
        false
    }

    /// Lets go of those that nobody came for.
    pub(super) fn sweep(&self, now: Duration) {
        self.stocks.borrow_mut().retain(|_, stock| now.saturating_sub(stock.used) < INSTANCES_AHEAD_IDLE);
    }

    /// Lets go of all.
    pub(super) fn clear(&self) {
        self.stocks.borrow_mut().clear();
    }
}

impl Stock {
    fn new(code: &Arc<Code>, now: Duration) -> Self {
        Self {
            code: Arc::clone(code),
            ready: VecDeque::new(),
            is_making: false,
            is_barred: false,
            template: Prospect::Untried,
            used: now,
        }
    }

    fn take(&mut self, code: &Arc<Code>, now: Duration) -> Option<(SpareInstance, Share)> {
        self.used = now;
        if !Arc::ptr_eq(&self.code, code) {
            // The class has a new version.
            self.code = Arc::clone(code);
            self.ready.clear();
            self.is_barred = false;
            self.template = Prospect::Untried;
        }
        self.ready.pop_front()
    }
}
