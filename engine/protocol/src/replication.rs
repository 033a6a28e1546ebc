//! How long uploads and restores may take, and when a snapshot is due. Pure: sizes and times in, limits out.

mod limits_of;
mod snapshots;

pub use limits_of::{Upload, read_limit, restore_limit, seconds_for};
pub use snapshots::SnapshotSchedule;
