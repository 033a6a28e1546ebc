//! What a node takes of the file system: descriptors, and its data directory.

use std::{
    fs::{self, File},
    path::Path,
};

use wasmkeep_protocol::limits;

use super::NodeError;
use crate::config::Config;

/// Descriptors a node needs besides those of connections and actors: rings, listeners, logs, components.
const OTHER_FILES: u64 = 128;

/// Descriptors of a resident actor: its database and its WAL.
const FILES_PER_ACTOR: u64 = 2;

/// What the open-file limit leaves of the numbers asked for.
pub(super) struct Fitted {
    pub(super) connections_max: usize,
    pub(super) resident_max: usize,
    pub(super) outbound_max: usize,
}

/// Lowers the numbers of connections and resident actors to what the open-file limit allows (R-FLAG-2): what is
/// left for both is shared in proportion, a connection needing one descriptor and an actor two. Outbound requests
/// have an eighth, so that actors cannot take the descriptors of clients.
pub(super) fn fit_open_files(config: &Config, files: u64) -> Result<Fitted, NodeError> {
    let shards = config.placement.shards as u64;
    let outbound = (files / 8).min(limits::OUTBOUND_REQUESTS_MAX as u64);
    let other = OTHER_FILES + 32 * shards + outbound;
    let (connections, resident) = (config.connections_max as u64, config.limits.resident_max as u64);
    let wanted = connections.saturating_add(resident.saturating_mul(FILES_PER_ACTOR));
    let left = files.saturating_sub(other);
    if wanted <= left {
        return Ok(Fitted {
            connections_max: config.connections_max,
            resident_max: config.limits.resident_max,
            outbound_max: outbound as usize,
        });
    }
    let share = |part: u64| (u128::from(part) * u128::from(left) / u128::from(wanted)) as usize;
    let (connections, resident) = (share(connections), share(resident));
    if connections == 0 || resident < config.placement.shards {
        return Err(NodeError::OpenFiles(files));
    }
    tracing::warn!(
        open_files = files,
        connections,
        resident,
        "the open-file limit is low: fewer connections and fewer actors in memory than asked for"
    );
    Ok(Fitted { connections_max: connections, resident_max: resident, outbound_max: outbound as usize })
}

/// Makes the directory when missing and locks it.
pub(super) fn take_data_dir(path: &Path) -> Result<File, NodeError> {
    let refused = |source| NodeError::DataDir { path: path.to_owned(), source };
    fs::create_dir_all(path).map_err(refused)?;
    let lock =
        File::options().create(true).write(true).truncate(false).open(path.join("lock")).map_err(refused)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => return Err(NodeError::DataDirInUse(path.to_owned())),
        Err(fs::TryLockError::Error(source)) => return Err(refused(source)),
    }
    let temporary = path.join("tmp");
    fs::create_dir_all(&temporary).map_err(refused)?;
    wasmkeep_storage::set_temp_folder(temporary);
    Ok(lock)
}
