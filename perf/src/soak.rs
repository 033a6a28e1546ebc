//! The parts of the soak: each kind of work, and what it counts.

pub mod accounts;
pub mod reminders;
pub mod rooms;

use std::{fmt, net::SocketAddr, time::Instant};

/// One thread's share of one kind of work: the actors `first`, `first + step`, … below `count`.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// The node.
    pub address: SocketAddr,
    /// When to stop asking for more.
    pub until: Instant,
    /// Its first actor.
    pub first: u32,
    /// From one of its actors to the next.
    pub step: u32,
    /// Actors of this kind in all.
    pub count: u32,
}

impl Share {
    /// Its actors.
    pub fn actors(&self) -> impl Iterator<Item = u32> + use<> {
        (self.first..self.count).step_by(self.step as usize)
    }
}

/// What was done, and what came of it.
#[derive(Debug, Default, Clone)]
pub struct Tally {
    /// Messages sent, each to come back to everyone in its room.
    pub messages: u64,
    /// Messages received.
    pub received: u64,
    /// Reminders set.
    pub reminders: u64,
    /// Bookings acknowledged.
    pub bookings: u64,
    /// Requests that were refused with 503 and asked again.
    pub again: u64,
    /// What must not be, in words.
    pub wrong: Vec<String>,
}

/// Wrongs that are told; the rest are counted.
const TOLD: usize = 10;

impl Tally {
    /// Adds another part's.
    pub fn add(&mut self, other: Self) {
        self.messages += other.messages;
        self.received += other.received;
        self.reminders += other.reminders;
        self.bookings += other.bookings;
        self.again += other.again;
        self.wrong.extend(other.wrong);
    }

    /// Nothing was lost, nothing came twice.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.wrong.is_empty()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { messages, received, reminders, bookings, again, wrong } = self;
        write!(
            f,
            "{messages} messages sent and {received} received, {reminders} reminders, {bookings} bookings, {again} \
             asked again"
        )?;
        for text in wrong.iter().take(TOLD) {
            write!(f, "\nWRONG: {text}")?;
        }
        if wrong.len() > TOLD {
            write!(f, "\nand {} more", wrong.len() - TOLD)?;
        }
        Ok(())
    }
}
