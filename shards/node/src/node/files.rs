//! What a node takes of the file system: descriptors, and its data directory.

use std::{
    fs::{self, DirBuilder, File, Permissions},
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

use wasmkeep_protocol::limits;

use super::NodeError;
use crate::config::Config;

/// Descriptors a node needs besides those of connections and actors: rings, listeners, logs, components.
const OTHER_FILES: u64 = 128;

/// The folder of spare databases, in the data directory.
pub(super) const SPARES: &str = "spares";

/// The folders of a data directory. Databases, logs and compiled code lie below them, so that nobody else reads those
/// where the directory itself is open to all.
const PARTS: [&str; 4] = ["actors", "alarms", "compiled", "tmp"];

/// Descriptors of a resident actor: its database and its WAL.
const FILES_PER_ACTOR: u64 = 2;

/// What the open-file limit leaves of the numbers asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fitted {
    pub(super) connections_max: usize,
    /// From other nodes.
    pub(super) cluster_connections_max: usize,
    pub(super) resident_max: usize,
    pub(super) outbound_max: usize,
}

/// Lowers the numbers of connections and resident actors to what the open-file limit allows (R-FLAG-2).
pub(super) fn fit_open_files(config: &Config, files: u64) -> Result<Fitted, NodeError> {
    let (connections, resident, shards) =
        (config.connections_max, config.limits.resident_max, config.placement.shards);
    let listens = config.cluster.as_ref().is_some_and(|cluster| cluster.listener.is_some());
    let fitted = fit(connections, resident, shards, listens, files);
    if fitted.connections_max == connections && fitted.resident_max == resident {
        return Ok(fitted);
    }
    if fitted.connections_max == 0 || fitted.resident_max < shards {
        return Err(NodeError::OpenFiles(files));
    }
    tracing::warn!(
        open_files = files,
        connections = fitted.connections_max,
        resident = fitted.resident_max,
        "the open-file limit is low: fewer connections and fewer actors in memory than asked for"
    );
    Ok(fitted)
}

/// What is left for connections and actors is shared in proportion, a connection needing one descriptor and an actor
/// two. Outbound requests and connections of other nodes (R-TLS-2) have an eighth each and operators a few, so that they
/// neither take nor lose the descriptors of clients.
fn fit(connections: usize, resident: usize, shards: usize, listens: bool, files: u64) -> Fitted {
    let outbound = (files / 8).min(limits::OUTBOUND_REQUESTS_MAX as u64);
    let cluster = if listens { (files / 8).min(limits::CLUSTER_CONNECTIONS_MAX as u64) } else { 0 };
    let kinds_of_spares = 1 + limits::TEMPLATES_PER_SHARD as u64;
    let spares = FILES_PER_ACTOR * kinds_of_spares * limits::SPARES_PER_SHARD as u64;
    let operators = limits::OPERATOR_CONNECTIONS_MAX as u64;
    let other = OTHER_FILES + operators + (32 + spares) * shards as u64 + outbound + cluster;
    let wanted = (connections as u64).saturating_add((resident as u64).saturating_mul(FILES_PER_ACTOR));
    let left = files.saturating_sub(other);
    let share = |part: usize| {
        if wanted <= left { part } else { (part as u128 * u128::from(left) / u128::from(wanted)) as usize }
    };
    Fitted {
        connections_max: share(connections),
        cluster_connections_max: cluster as usize,
        resident_max: share(resident),
        outbound_max: outbound as usize,
    }
}

/// Makes a folder, and those above it, for this user alone. One that is there is left as it is.
fn make_private(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Takes what all users may do with a folder away, which an earlier version let them.
fn close_to_others(folder: &Path) -> io::Result<()> {
    let mode = fs::metadata(folder)?.permissions().mode() & 0o7777;
    if mode & 0o007 == 0 {
        Ok(())
    } else {
        fs::set_permissions(folder, Permissions::from_mode(mode & !0o007))
    }
}

/// Makes the directory when missing and locks it.
pub(super) fn take_data_dir(path: &Path) -> Result<File, NodeError> {
    let refused = |source| NodeError::DataDir { path: path.to_owned(), source };
    make_private(path).map_err(refused)?;
    for part in PARTS {
        let part = path.join(part);
        make_private(&part).and_then(|()| close_to_others(&part)).map_err(refused)?;
    }
    let lock = File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .mode(0o600)
        .open(path.join("lock"))
        .map_err(refused)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => return Err(NodeError::DataDirInUse(path.to_owned())),
        Err(fs::TryLockError::Error(source)) => return Err(refused(source)),
    }
    // Those that the node before left behind.
    match fs::remove_dir_all(path.join(SPARES)) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(refused(error)),
        _ => {}
    }
    let temporary = path.join("tmp");
    wasmkeep_storage::set_temp_folder(temporary);
    Ok(lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    // R-FLAG-2, R-TLS-2
    #[test]
    fn other_nodes_have_their_connections_before_clients_do() {
        for (listens, files, clients, nodes) in [
            (false, 65_536, 10_000, 0),
            (true, 65_536, 10_000, 1_024),
            (false, 1_024, 160, 0),
            (true, 1_024, 117, 128),
            (true, 256, 0, 32),
        ] {
            let fitted = fit(10_000, 10_000, 2, listens, files);
            let seen = (fitted.connections_max, fitted.cluster_connections_max);
            assert_eq!(seen, (clients, nodes), "{listens} {files}");
            assert_eq!(fitted.resident_max, fitted.connections_max);
        }
    }
}
