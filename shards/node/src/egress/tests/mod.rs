//! The client against servers on loopback that behave and misbehave.

mod kit;
mod limits;
mod messages;
mod places;
