//! Where shards sit: how many, on which CPUs, with what rings. Owns the flags' meaning and their checks;
//! does not start anything.

use std::{fmt, str::FromStr, time::Duration};

/// Depth of each executor's rings unless a flag says otherwise: more submissions than a shard produces in one pass.
pub const RING_DEPTH: usize = 256;

/// Registered I/O memory of each executor, in bytes, unless a flag says otherwise. A shard does no direct file
/// I/O, so the smallest slab is enough; the executor's own default of 10 MiB exceeds most memlock limits.
pub const IO_MEMORY_BYTES: usize = 64 << 10;

/// Most shards of a node. Each costs rings, a mesh inbox and a listener; no machine this is meant for has more.
const SHARDS_MAX: usize = 1024;

/// CPUs by number, ascending, without repetition, never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuSet(Vec<usize>);

impl CpuSet {
    /// The CPUs this process may run on (its affinity mask: a container's cpuset counts).
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn allowed() -> std::io::Result<CpuSet> {
        let mask = rustix::thread::sched_getaffinity(None)?;
        let cpus: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| mask.is_set(*cpu)).collect();
        Ok(CpuSet(cpus))
    }

    /// CPU numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().copied()
    }

    /// How many CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never true for a parsed set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The `index`-th CPU.
    pub fn get(&self, index: usize) -> Option<usize> {
        self.0.get(index).copied()
    }

    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }
}

/// Not a list of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a list of CPUs; write numbers and ranges, for instance 0-3,8")]
pub struct CpuSetSyntax(String);

impl FromStr for CpuSet {
    type Err = CpuSetSyntax;

    fn from_str(text: &str) -> Result<CpuSet, CpuSetSyntax> {
        let wrong = || CpuSetSyntax(text.to_owned());
        let number = |part: &str| -> Result<usize, CpuSetSyntax> {
            let cpu: usize = part.trim().parse().map_err(|_| wrong())?;
            if cpu < rustix::thread::CpuSet::MAX_CPU { Ok(cpu) } else { Err(wrong()) }
        };
        let mut cpus = Vec::new();
        for part in text.split(',') {
            match part.split_once('-') {
                None => cpus.push(number(part)?),
                Some((first, last)) => {
                    let (first, last) = (number(first)?, number(last)?);
                    if first > last {
                        return Err(wrong());
                    }
                    cpus.extend(first..=last);
                }
            }
        }
        cpus.sort_unstable();
        cpus.dedup();
        Ok(CpuSet(cpus))
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut index = 0;
        while index < self.0.len() {
            let first = self.0[index];
            let mut last = first;
            while self.0.get(index + 1) == Some(&(last + 1)) {
                index += 1;
                last += 1;
            }
            let comma = if first == self.0[0] { "" } else { "," };
            if first == last {
                write!(f, "{comma}{first}")?
            } else {
                write!(f, "{comma}{first}-{last}")?
            }
            index += 1;
        }
        Ok(())
    }
}

/// How the shards of this node sit on the machine (R-FLAG-7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Executors, 1..=1024. Actors are spread over them by name.
    pub shards: usize,
    /// CPUs the shards may use; `None`: every CPU this process may use.
    pub cpuset: Option<CpuSet>,
    /// Shard *i* stays on the *i*-th CPU of the set. Off: the kernel places the shards within the set.
    pub pin: bool,
    /// How long a shard with nothing to do polls before it parks; zero parks at once.
    pub spin_before_park: Duration,
    /// Submissions one ring takes per pass, 1..=4096.
    pub ring_depth: usize,
    /// Registered I/O memory per executor, in bytes; rounded up to 64 KiB by the executor.
    pub io_memory: usize,
}

/// A placement that cannot work. Each says what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// No shard, or absurdly many.
    #[error("{0} shards cannot be started; give a number from 1 to {SHARDS_MAX}")]
    Shards(usize),
    /// Ring depth out of range.
    #[error("a ring depth of {0} is out of range; give a number from 1 to 4096")]
    RingDepth(usize),
    /// The set names CPUs this process may not use.
    #[error(
        "CPU {cpu} of the cpuset is not available to this process, which may use {allowed}; choose among those"
    )]
    CpuAbsent {
        /// First CPU that is missing.
        cpu: usize,
        /// What there is.
        allowed: CpuSet,
    },
    /// More pinned shards than CPUs.
    #[error(
        "{shards} pinned shards need {shards} CPUs and the cpuset {cpus} has {have}; lower the number of shards, widen the cpuset, or do not pin"
    )]
    TooFewCpus {
        /// Shards asked for.
        shards: usize,
        /// The set in force.
        cpus: CpuSet,
        /// Its size.
        have: usize,
    },
}

impl Placement {
    /// What suits a machine of `cpus` CPUs: a shard on every CPU but one, which is left to the bucket's thread and to
    /// those whose work blocks.
    pub fn for_cpus(cpus: usize) -> Placement {
        Placement::of(cpus.saturating_sub(1).clamp(1, SHARDS_MAX), cpus)
    }

    /// What suits so many `shards` on a machine of `cpus` CPUs. They are pinned as long as a CPU is left: what else runs
    /// goes there, where it would wait for the CPU of one shard while that of another is idle.
    pub fn of(shards: usize, cpus: usize) -> Placement {
        Placement {
            shards,
            cpuset: None,
            pin: shards < cpus,
            spin_before_park: Duration::ZERO,
            ring_depth: RING_DEPTH,
            io_memory: IO_MEMORY_BYTES,
        }
    }

    /// Checks the placement against the CPUs this process may use.
    ///
    /// # Errors
    /// The first thing that cannot work.
    pub fn check(&self, allowed: &CpuSet) -> Result<(), PlacementError> {
        if self.shards == 0 || self.shards > SHARDS_MAX {
            return Err(PlacementError::Shards(self.shards));
        }
        if self.ring_depth == 0 || self.ring_depth > 4096 {
            return Err(PlacementError::RingDepth(self.ring_depth));
        }
        let cpus = self.cpuset.as_ref().unwrap_or(allowed);
        if let Some(cpu) = cpus.iter().find(|cpu| !allowed.contains(*cpu)) {
            return Err(PlacementError::CpuAbsent { cpu, allowed: allowed.clone() });
        }
        if self.pin && self.shards > cpus.len() {
            let have = cpus.len();
            return Err(PlacementError::TooFewCpus { shards: self.shards, cpus: cpus.clone(), have });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
