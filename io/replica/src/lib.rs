//! An actor's data on its way to the bucket and back: uploads of what was committed, the index of alarms, restores,
//! and the deletion of history that no restore needs.
//!
//! Owns the effects: what is sent, how often, within which time, and what a reply means. Which files make a
//! history and how long things may take are pure functions of `protocol`; what is in a file is `ltx`'s. Knows no
//! thread, no SQLite and no clock but its [`Runtime`](wasmkeep_runtime::Runtime).
//!
//! Nothing here starts a task: whoever calls polls. Futures are not `Send`; all parts of one node's replication
//! run on one thread and share one [`ReadBudget`]. A future that is dropped leaves what it sent in the unknown:
//! it may land later, and the names of history files make that harmless.

mod alarms;
mod budget;
mod building;
mod commit;
mod entries;
mod history;
mod hold;
mod read;
mod reaper;
mod restore;
mod send;
mod session;
mod sweeps;
mod turns;
mod upload_budget;
mod uploader;

pub use alarms::{Overdue, Subject, overdue, whose};
pub use budget::ReadBudget;
pub use building::LocalError;
pub use commit::{Commit, Content};
pub use entries::Entries;
pub use history::{History, HistoryError, look};
pub use hold::Hold;
pub use read::ReadFailure;
pub use reaper::{CollectError, collect, erase};
pub use restore::{RestoreError, Restored, Restorer};
pub use send::UploadError;
pub use session::{
    BucketSide, Flags, Guest, Opened, Opening, Session, SessionConfig, SessionError, Snapshot, TakeError,
    Taken,
};
pub use sweeps::{Looks, Sweeps};
pub use turns::{Turn, Turns};
pub use upload_budget::UploadBudget;
pub use uploader::{GivenUp, Need, Uploader, Ways};
