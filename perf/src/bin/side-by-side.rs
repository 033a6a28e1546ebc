//! Starts workerd and our node in turn, drives both with the same client, and reports the figures of both.
//!
//! `perf/side-by-side` builds what is needed and calls this; see `perf/README.md`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::Parser;
use wasmkeep_perf::{
    eprintln,
    load::Client,
    machine, memory, process,
    report::{Report, Run},
    scenario::{self, Ground, Scenario},
    subject::{Programs, Subject},
};

/// Actors touched for the memory figures, where files enough may be open.
const ACTORS: usize = 10_000;

/// Open files for each of them: workerd has three, and those it keeps for ten seconds of the actors before.
const FILES_PER_ACTOR: u64 = 4;

/// Compares a node with workerd on this machine.
#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    programs: Programs,

    #[command(flatten)]
    client: Client,

    /// Folder in memory for data directories; must be on a tmpfs.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    memory_dir: PathBuf,

    /// Folder on disk for data directories.
    #[arg(long, value_name = "DIR")]
    disk_dir: PathBuf,

    /// Rounds; in each, both servers are measured once.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Seconds of one measurement. workerd keeps three files open for each new actor, for ten seconds.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,

    /// Actors touched for the memory figures; 0 leaves them out [default: 10,000, or as many as the open-file limit allows].
    #[arg(long, value_name = "N")]
    actors: Option<usize>,

    /// Measure only this server; there are no ratios then.
    #[arg(long, value_name = "SERVER")]
    only: Option<Subject>,

    /// Leave the measurements on disk out.
    #[arg(long)]
    no_disk: bool,

    /// Something to record in the report, as NAME=VALUE. Repeatable.
    #[arg(long, value_name = "NAME=VALUE")]
    note: Vec<String>,
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    if !machine::is_tmpfs(&flags.memory_dir)? {
        bail!("{:?} is not kept in memory: name a folder on a tmpfs with --memory-dir", flags.memory_dir);
    }
    let open_files = machine::raise_open_files()?;
    let mut report = Report { circumstances: circumstances(&flags, open_files)?, ..Report::default() };
    let measured = flags.measure_all(&mut report, open_files);
    if let Err(error) = &measured {
        report.circumstances.push(("broke off", error.root_cause().to_string()));
    }
    // Also where it broke off: what was measured until then took minutes.
    println!("{}", report.markdown().trim_end());
    measured
}

impl Flags {
    fn measure_all(&self, report: &mut Report, open_files: u64) -> Result<()> {
        let mut grounds = vec![Ground::Memory];
        if !self.no_disk {
            grounds.push(Ground::Disk);
        }
        for ground in grounds {
            for round in 1..=self.rounds {
                for subject in self.subjects() {
                    self.measure(report, ground, round, subject)?;
                }
            }
        }
        let actors = self.actors.unwrap_or_else(|| ACTORS.min((open_files / FILES_PER_ACTOR) as usize));
        for subject in self.subjects().into_iter().filter(|_| actors > 0) {
            eprintln!("memory: {subject}, {actors} actors…");
            let folder = folder_in(&self.memory_dir)?;
            let footprint = memory::footprint(&self.programs, subject, folder.path(), actors)?;
            report.footprints.push((subject, footprint));
        }
        Ok(())
    }

    fn subjects(&self) -> Vec<Subject> {
        self.only.map_or_else(|| vec![Subject::Workerd, Subject::Wasmkeep], |only| vec![only])
    }

    fn ground_dir(&self, ground: Ground) -> &Path {
        match ground {
            Ground::Memory => &self.memory_dir,
            Ground::Disk => &self.disk_dir,
        }
    }

    /// One server through all scenarios of a ground, on a new data directory.
    fn measure(&self, report: &mut Report, ground: Ground, round: u32, subject: Subject) -> Result<()> {
        let folder = folder_in(self.ground_dir(ground))?;
        let server = self.programs.start(subject, folder.path(), &[])?;
        scenario::warm_up(&self.client, &server, subject, ground)?;
        for &scenario in Scenario::of(ground) {
            let measured = scenario::measure(scenario, &self.client, &server, subject, ground, self.seconds)
                .with_context(|| format!("{}, {subject}:\n{}", scenario.title(), server.log_end()))?;
            eprintln!(
                "round {round}, {ground:?}, {subject:8}, {:44} {:7.0}/s  p50 {:6} µs  p99 {:6} µs  CPU {:6.1} µs{}",
                scenario.title(),
                measured.figures.per_second(),
                measured.figures.p50_us,
                measured.figures.p99_us,
                measured.cpu_us,
                measured.invalid.as_ref().map_or_else(String::new, |why| format!("  DOES NOT COUNT: {why}")),
            );
            report.runs.push(Run { ground, scenario, subject, round, measured });
        }
        let status = server.stop()?;
        // workerd has no handler for SIGTERM: being ended by it is its way to stop.
        if subject == Subject::Wasmkeep && !status.success() {
            bail!("the node ended with {status}");
        }
        Ok(())
    }
}

fn folder_in(parent: &Path) -> Result<tempfile::TempDir> {
    fs::create_dir_all(parent).with_context(|| format!("{parent:?} cannot be made"))?;
    let folder = tempfile::Builder::new().prefix("wasmkeep-perf-").tempdir_in(parent);
    folder.with_context(|| format!("no folder can be made in {parent:?}"))
}

fn circumstances(flags: &Flags, open_files: u64) -> Result<Vec<(&'static str, String)>> {
    let load = process::load_average()?;
    if load > 0.5 {
        eprintln!("The load average is {load}: something else runs here, and the figures will show it.");
    }
    let mut versions = vec![machine::version_of(&flags.client.wrk, "-v")?];
    for subject in flags.subjects() {
        versions.push(match subject {
            Subject::Workerd => machine::version_of(&flags.programs.workerd, "--version")?,
            Subject::Wasmkeep => machine::version_of(&flags.programs.wasmkeep, "--version")?,
        });
    }
    let node_flags = match flags.programs.node_flags.as_slice() {
        [] => "none beyond --actor, --data-dir and --listen".to_owned(),
        flags => flags.join(" "),
    };
    let mut circumstances = vec![
        ("machine", machine::describe()),
        ("versions", versions.join("; ")),
        ("flags of the node", node_flags),
        ("client", "wrk, one thread, the same for both; it shares the machine with the server".to_owned()),
        (
            "runs",
            format!("rounds: {}, seconds each: {}, the servers alternating", flags.rounds, flags.seconds),
        ),
        ("load average at the start", format!("{load:.2}")),
        ("open-file limit", open_files.to_string()),
    ];
    if !flags.no_disk {
        fs::create_dir_all(&flags.disk_dir).with_context(|| format!("{:?}", flags.disk_dir))?;
        let kind = machine::file_system(&flags.disk_dir);
        if machine::is_tmpfs(&flags.disk_dir)? {
            bail!("{:?} is kept in memory: name a folder on a disk with --disk-dir", flags.disk_dir);
        }
        circumstances.push(("file system on disk", kind));
    }
    circumstances.extend(flags.note.iter().map(|note| ("note", note.clone())));
    Ok(circumstances)
}
