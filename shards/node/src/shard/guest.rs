//! A live instance whose memory is on the shard's meter.

use std::{cell::Cell, rc::Rc, time::Duration};

use wasmkeep_actor::{AlarmError, Guest, InitError, TurnEnd};
use wasmkeep_host::{ActorEvent, Instance, instance_memory_bytes};

use super::gate::Gated;

/// Linear memory of all instances of a shard, in bytes.
#[derive(Debug, Default)]
pub(crate) struct MemoryMeter(Cell<usize>);

impl MemoryMeter {
    pub(crate) fn bytes(&self) -> usize {
        self.0.get()
    }
}

/// The part of the meter that is one instance's.
pub(super) struct Share {
    meter: Rc<MemoryMeter>,
    counted: usize,
}

impl Share {
    /// Nothing yet.
    pub(super) fn new(meter: Rc<MemoryMeter>) -> Self {
        Self { meter, counted: 0 }
    }

    pub(super) fn set(&mut self, bytes: usize) {
        let others = self.meter.bytes() - self.counted;
        self.meter.0.set(others + bytes);
        self.counted = bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// An instance and the part of the meter that is its own.
pub(crate) struct MeteredInstance {
    instance: Instance,
    share: Share,
    /// What it says waits there.
    gated: Option<Gated>,
}

impl MeteredInstance {
    pub(crate) fn new(instance: Instance, meter: Rc<MemoryMeter>) -> Self {
        let mut metered = Self::of(instance, Share::new(meter));
        metered.measure();
        metered
    }

    /// `share` is its own already.
    pub(super) fn of(instance: Instance, share: Share) -> Self {
        Self { instance, share, gated: None }
    }

    /// Behind its actor's gate, if it has one.
    pub(super) fn behind(mut self, gated: Option<Gated>) -> Self {
        self.gated = gated;
        self
    }

    fn measure(&mut self) {
        self.share.set(instance_memory_bytes(&self.instance));
    }
}

impl Guest for MeteredInstance {
    type Event = ActorEvent;

    fn has_init(&self) -> bool {
        self.instance.has_init()
    }

    async fn init(&mut self) -> Result<(), InitError> {
        let result = match &self.gated {
            None => self.instance.init().await,
            Some(gated) => Box::pin(gated.run(self.instance.init(), None)).await,
        };
        self.measure();
        result
    }

    fn ends_at(&mut self, moment: Duration) {
        self.instance.ends_at(moment);
    }

    fn doze(&mut self) {
        self.instance.doze();
    }

    async fn alarm(&mut self, due_ms: u64, attempt: u32) -> Result<(), AlarmError> {
        let result = match &self.gated {
            None => self.instance.alarm(due_ms, attempt).await,
            Some(gated) => Box::pin(gated.run(self.instance.alarm(due_ms, attempt), None)).await,
        };
        self.measure();
        result
    }

    async fn deliver(&mut self, event: ActorEvent) -> TurnEnd {
        let end = match &self.gated {
            None => self.instance.deliver(event).await,
            Some(gated) => {
                let (event, answer) = event.intercept();
                Box::pin(gated.run(self.instance.deliver(event), answer)).await
            }
        };
        self.measure();
        end
    }
}
