//! What a run was measured on: recorded in its report, since no figure means anything without it.

use std::{fs, io, path::Path, process::Command};

use anyhow::{Context, Result, bail};
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

/// `f_type` of tmpfs in `statfs`.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// One line: processor, cores, memory, kernel.
#[must_use]
pub fn describe() -> String {
    let line_of = |path: &str, name: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map(|line| line.trim_start_matches([' ', '\t', ':']).to_owned())
    };
    let processor = line_of("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".into());
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let memory = line_of("/proc/meminfo", "MemTotal").unwrap_or_else(|| "unknown memory".into());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{processor}, {cores} cores, {memory} of memory, Linux {}", kernel.trim())
}

/// Whether a folder is kept in memory.
///
/// # Errors
/// When it cannot be looked at.
pub fn is_tmpfs(folder: &Path) -> io::Result<bool> {
    Ok(rustix::fs::statfs(folder)?.f_type as u64 == TMPFS_MAGIC)
}

/// The file system a folder is on, by the name its type has in the mount table.
#[must_use]
pub fn file_system(folder: &Path) -> String {
    let Ok(folder) = folder.canonicalize() else { return "unknown".into() };
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    file_system_of(&folder, &mounts).unwrap_or_else(|| "unknown".into())
}

/// The type of the innermost mount that holds `folder`; of several on one point, the last hides the others.
fn file_system_of(folder: &Path, mounts: &str) -> Option<String> {
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let point = Path::new(fields.next()?);
        folder.starts_with(point).then_some((point.components().count(), fields.next()?.to_owned()))
    });
    mounts.max_by_key(|(depth, _)| *depth).map(|(_, kind)| kind)
}

/// The CPUs this process may use.
///
/// # Errors
/// When the kernel does not tell.
pub fn cpus() -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect())
}

/// Keeps this thread, and those it starts from now on, on some CPUs.
///
/// # Errors
/// None of them may be used.
pub fn stay_on(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    Ok(sched_setaffinity(None, &set)?)
}

/// Raises the open-file limit to the most this process may have, for itself and the servers it starts. Says how
/// many that is.
///
/// # Errors
/// When the kernel refuses.
pub fn raise_open_files() -> Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).context("the open-file limit cannot be raised")?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

/// The first line a program prints when asked for its version with `flag`.
///
/// # Errors
/// When it cannot be run or prints nothing.
pub fn version_of(program: &Path, flag: &str) -> Result<String> {
    let output = Command::new(program).arg(flag).output();
    let output = output.with_context(|| format!("{program:?} cannot be run"))?;
    // wrk tells its version on stdout and exits 1.
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    match text.lines().map(str::trim).find(|line| !line.is_empty()) {
        Some(line) => Ok(line.to_owned()),
        None => bail!("{program:?} {flag} prints nothing"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_on_its_innermost_mount() {
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\nnone /dev/shm/b xfs rw 0 0\n";
        let kind = |folder: &str| file_system_of(Path::new(folder), mounts);
        assert_eq!(kind("/var/lib").as_deref(), Some("ext4"));
        assert_eq!(kind("/dev/shm/a").as_deref(), Some("tmpfs"));
        assert_eq!(kind("/dev/shm/b/c").as_deref(), Some("xfs"));
        assert_eq!(kind("/dev/shmem").as_deref(), Some("ext4"));
    }
}
