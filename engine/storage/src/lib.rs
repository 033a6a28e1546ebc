//! One actor's SQLite database: its connection, the limits guest SQL runs under, and what is durable.
//!
//! A [`Database`] is used by one thread at a time. Guest SQL runs on a stack of its own and gives the core back
//! when its slice is spent ([`Pace`]); work that blocks (opening, syncing, checkpoints, closing) goes to an
//! [`Offload`]. It knows no executor, no actor and no bucket.
//!
//! # What a connection costs
//!
//! Memory: 46 KiB when opened, 50 KiB idle with a one-table schema after [`Database::shrink`], 67 KiB right after
//! use with its statements and pages kept, of which the system sees 89 in whole pages (2,000 connections). 32 KiB of
//! it is the index of the WAL, which SQLite takes whole. Two descriptors. After [`Database::doze`]: less than 2 KiB
//! and no descriptor; [`Database::wake`], one write and another doze take 0.2 ms.
//!
//! # Where a statement cannot be suspended
//!
//! Within one step of SQLite's machine: LIKE and GLOB take time in the product of pattern and text, the full-text
//! tokenizer and the JSON functions in the length of one value. The limits bound those; all else gives the core
//! back within its slice and a few steps.

mod alarm;
mod capture;
mod checkpoint;
mod connection;
mod cursor;
mod database;
mod disk;
mod error;
mod execute;
mod files;
mod functions;
mod hooks;
mod image;
mod init;
pub mod limits;
mod memory;
mod offload;
mod pace;
mod policy;
mod rows;
mod run;
mod settings;
mod sink;
mod spare;
mod statement;
mod sums;
mod template;
mod value;
mod wal;

pub use alarm::{KeptAlarm, peek_alarm};
pub use cursor::Cursor;
pub use database::{Config, Database, EventEnd};
pub use error::{Error, OpenError, SqliteError, VersionError};
pub use image::remove;
pub use offload::{Inline, Offload, offloaded};
pub use pace::{Checks, Pace, Pacer, SLICE, WallClock};
pub use run::STACK_BYTES;
pub use settings::{check_sqlite_version, is_memory_counted, set_temp_folder};
pub use sink::CommitSink;
pub use spare::{Spare, Unplaced};
pub use template::Template;
pub use value::{Changes, ResultSet, Value};
