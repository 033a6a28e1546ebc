//! What the kernel knows about a server: CPU time, memory, open databases. Reads `/proc`; Linux only.

use std::{fs, io, path::Path, time::Duration};

/// Ticks per second in `/proc/PID/stat`. Part of the kernel's interface to user space: 100 on every
/// architecture this runs on, whatever rate the kernel itself ticks at.
const TICKS_PER_SECOND: u64 = 100;

/// Memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Resident now, in bytes: anonymous, file-backed and shared pages.
    pub resident_bytes: u64,
    /// The most that ever was.
    pub peak_bytes: u64,
}

/// CPU time, user and kernel, of all threads of a process, of its children that ended and of those that live.
/// Counted in steps of 10 ms.
///
/// # Errors
/// When the process is gone.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    let own = Stat::of(pid)?.all();
    let children = children(pid)?.into_iter().filter_map(|child| cpu_time(child).ok());
    Ok(own + children.sum::<Duration>())
}

/// CPU time of the children of this process that ended and were waited for.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn ended_children_cpu_time() -> io::Result<Duration> {
    Ok(Stat::of(std::process::id())?.ended_children)
}

/// Memory of a process, without its children.
///
/// # Errors
/// When the process is gone.
pub fn memory(pid: u32) -> io::Result<Memory> {
    parse_memory(&fs::read_to_string(format!("/proc/{pid}/status"))?)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the process has ended"))
}

/// Database files (`*.EXTENSION`) a process has open.
///
/// # Errors
/// When the process is gone.
pub fn open_databases(pid: u32, extension: &str) -> io::Result<usize> {
    let mut databases = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // One that was closed meanwhile does not count.
        let Ok(target) = entry.and_then(|entry| fs::read_link(entry.path())) else { continue };
        databases += usize::from(target.extension().is_some_and(|found| found == Path::new(extension)));
    }
    Ok(databases)
}

/// The load average of the last minute.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn load_average() -> io::Result<f64> {
    let text = fs::read_to_string("/proc/loadavg")?;
    let first = text.split(' ').next().and_then(|number| number.parse().ok());
    first.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, text))
}

fn children(pid: u32) -> io::Result<Vec<u32>> {
    let mut children = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let Ok(text) = task.and_then(|task| fs::read_to_string(task.path().join("children"))) else {
            continue;
        };
        children.extend(text.split_ascii_whitespace().filter_map(|child| child.parse::<u32>().ok()));
    }
    Ok(children)
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    own: Duration,
    ended_children: Duration,
}

impl Stat {
    fn of(pid: u32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        Self::parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, text))
    }

    /// Fields 14 to 17 of the line; the name in field 2 may hold spaces and brackets.
    fn parse(text: &str) -> Option<Self> {
        let (_, fields) = text.rsplit_once(')')?;
        let mut times = fields.split_ascii_whitespace().skip(11).map(str::parse::<u64>);
        let mut next = || Some(times.next()?.ok()? * (1000 / TICKS_PER_SECOND));
        let own = Duration::from_millis(next()? + next()?);
        Some(Self { own, ended_children: Duration::from_millis(next()? + next()?) })
    }

    fn all(&self) -> Duration {
        self.own + self.ended_children
    }
}

fn parse_memory(status: &str) -> Option<Memory> {
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    Some(Memory { resident_bytes: kib("VmRSS:")? << 10, peak_bytes: kib("VmHWM:")? << 10 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_process_name() {
        let stat =
            Stat::parse("7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 30 7 20 0 9 0 1 2 3").unwrap();
        assert_eq!(stat.own, Duration::from_millis(2000));
        assert_eq!(stat.ended_children, Duration::from_millis(370));
        assert_eq!(Stat::parse("7 (short) S 1 7"), None);
    }

    #[test]
    fn memory_is_told_in_bytes_and_an_ended_process_has_none() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(parse_memory(status), Some(Memory { resident_bytes: 1 << 20, peak_bytes: 2 << 20 }));
        assert_eq!(parse_memory("Name:\tzombie\n"), None);
    }

    #[test]
    fn work_done_here_shows_in_the_cpu_time_and_open_databases_are_counted_by_extension() {
        let me = std::process::id();
        let before = cpu_time(me).unwrap();
        let mut sum = 0u64;
        while cpu_time(me).unwrap() < before + Duration::from_millis(30) {
            sum = (0..100_000u64).fold(sum, |sum, n| std::hint::black_box(sum ^ n));
        }
        let folder = tempfile::tempdir().unwrap();
        let before = open_databases(me, "perfdb").unwrap();
        let files: Vec<_> = ["a.perfdb", "b.perfdb", "b.perfdb-wal", "c.log"]
            .iter()
            .map(|name| fs::File::create(folder.path().join(name)).unwrap())
            .collect();
        assert_eq!(open_databases(me, "perfdb").unwrap() - before, 2);
        drop(files);
        assert_eq!(open_databases(me, "perfdb").unwrap() - before, 0);
    }
}
