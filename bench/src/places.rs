//! Where a bench keeps its databases.

use std::path::Path;

use tempfile::TempDir;

/// A folder in memory where the system has one, so that no disk is measured; else the usual place for temporary
/// files.
///
/// # Panics
/// When no folder can be made.
#[must_use]
pub fn in_memory() -> TempDir {
    let shared_memory = Path::new("/dev/shm");
    let parent = if shared_memory.is_dir() { shared_memory.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("wasmkeep-bench-").tempdir_in(parent).expect("a temporary folder")
}
