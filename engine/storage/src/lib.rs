//! One actor's SQLite database: its connection, the limits guest SQL runs under, and what is durable.
//!
//! A [`Database`] is used by one thread at a time. Guest SQL runs on a stack of its own and gives the core back
//! when its slice is spent ([`Pace`]); work that blocks (opening, syncing, checkpoints, closing) goes to an
//! [`Offload`]. It knows no executor, no actor and no bucket.

mod checkpoint;
mod connection;
mod cursor;
mod database;
mod disk;
mod error;
mod execute;
mod hooks;
mod image;
mod init;
pub mod limits;
mod memory;
mod offload;
mod pace;
mod policy;
mod run;
mod settings;
mod statement;
mod value;

pub use cursor::Cursor;
pub use database::{Config, Database, EventEnd};
pub use error::{Error, OpenError, SqliteError, VersionError};
pub use image::remove;
pub use offload::{Inline, Offload};
pub use pace::{Checks, Pace, Pacer, SLICE, WallClock};
pub use run::STACK_BYTES;
pub use settings::{check_sqlite_version, is_memory_counted, set_temp_folder};
pub use value::{Changes, ResultSet, Value};
