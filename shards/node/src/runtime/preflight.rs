//! What must be true before an executor is made: io_uring may be used, enough memory may be locked, the CPUs are
//! there. Owns the probes and the sentences; does not start executors (their timers are tested by
//! [`start`](super::start), in the executors that will serve).

use super::{CpuSet, Placement, PlacementError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{fmt, io, os::fd::FromRawFd};

/// Lockable memory below which the executor refuses to be made, in bytes, whatever the user.
pub const MEMLOCK_FLOOR_BYTES: u64 = 512 << 10;

/// Why the node cannot start on this machine. One sentence each, with the next step.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    /// The placement flags cannot work here.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The kernel or a container forbids io_uring.
    #[error("{0}")]
    IoUring(IoUringRefused),
    /// Too little memory may be locked.
    #[error(
        "the limit of lockable memory (RLIMIT_MEMLOCK) is {limit_bytes} bytes and the executors need at least {MEMLOCK_FLOOR_BYTES}; raise it with `ulimit -l 8192`, LimitMEMLOCK=8M in the systemd unit, or --ulimit memlock=8388608 for a container"
    )]
    Memlock {
        /// The hard limit found, in bytes.
        limit_bytes: u64,
    },
    /// The kernel did not answer a question it always answers.
    #[error("the kernel refused to say {what}: {source}")]
    System {
        /// What was asked.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

/// How `io_uring_setup` was refused.
#[derive(Debug)]
pub struct IoUringRefused(io::Error);

impl fmt::Display for IoUringRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.raw_os_error() {
            Some(libc::ENOSYS) => {
                f.write_str("this kernel has no io_uring; run on Linux 5.10 or newer, or on one built with CONFIG_IO_URING")
            }
            Some(libc::EPERM) => f.write_str(
                "io_uring is forbidden to this process; in a container allow io_uring_setup, io_uring_enter and io_uring_register in its seccomp profile, on the machine itself set `sysctl kernel.io_uring_disabled=0`",
            ),
            _ => write!(f, "io_uring cannot be set up: {}; free memory or descriptors and start again", self.0),
        }
    }
}

/// Checks all of it and raises the soft limits of open files and lockable memory to the hard ones.
///
/// # Errors
/// The first check that failed; nothing was started.
pub fn preflight(placement: &Placement) -> Result<(), PreflightError> {
    let allowed = CpuSet::allowed()
        .map_err(|source| PreflightError::System { what: "which CPUs it may use", source })?;
    placement.check(&allowed)?;
    probe_io_uring().map_err(|error| PreflightError::IoUring(IoUringRefused(error)))?;
    let memlock = raise_to_hard(Resource::Memlock);
    if memlock < MEMLOCK_FLOOR_BYTES {
        return Err(PreflightError::Memlock { limit_bytes: memlock });
    }
    raise_to_hard(Resource::Nofile);
    // Three rings register the slab; a kernel that accounts for it only skips the registration.
    let wanted = (placement.shards * placement.io_memory.max(super::placement::IO_MEMORY_BYTES) * 3) as u64;
    if memlock < wanted {
        tracing::info!(
            limit_bytes = memlock,
            wanted_bytes = wanted,
            "lockable memory is short for registered buffers; they are not used"
        );
    }
    Ok(())
}

/// Open files this process may have now.
pub fn open_files_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the soft limit to the hard one and returns what is in force, `u64::MAX` for no limit.
fn raise_to_hard(resource: Resource) -> u64 {
    let limit = getrlimit(resource);
    if limit.current == limit.maximum {
        return limit.current.unwrap_or(u64::MAX);
    }
    match setrlimit(resource, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}

/// Asks the kernel for a ring of two entries and gives it back: the executor itself panics with a misleading
/// message where this is refused.
fn probe_io_uring() -> io::Result<()> {
    // `struct io_uring_params` is 120 bytes; all zero asks for the defaults.
    let mut params = [0u64; 15];
    // SAFETY: the second argument points to a writable io_uring_params that outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 2, params.as_mut_ptr()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a new descriptor that nothing else owns.
    drop(unsafe { std::os::fd::OwnedFd::from_raw_fd(fd as i32) });
    Ok(())
}
