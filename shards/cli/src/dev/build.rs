//! One run of cargo, which may be ended before it is done. What it has to say it says on stderr itself.

use std::{
    fs,
    io::{self, BufReader},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
};

use cargo_metadata::{Message, PackageId};
use rustix::process::{Pid, Signal, kill_process_group};

/// How a build went.
#[derive(Debug)]
pub(super) enum Built {
    /// The component, and where cargo put it.
    Component(PathBuf, Arc<[u8]>),
    /// Cargo has said why.
    Failed,
    /// Cargo could not be run, or made nothing.
    Impossible(String),
}

/// A build under way, on a thread of its own. Dropping it ends cargo and the compilers it started.
#[derive(Debug)]
pub(super) struct Building {
    group: Option<Pid>,
}

impl Building {
    /// Runs `cargo`, and tells `done` what came of it.
    pub(super) fn start(
        mut cargo: Command,
        package: PackageId,
        done: impl FnOnce(Built) + Send + 'static,
    ) -> Self {
        cargo
            .arg("--message-format=json-render-diagnostics")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // A group of its own, so that its compilers can be ended with it.
            .process_group(0);
        match cargo.spawn() {
            Err(error) => {
                done(Built::Impossible(format!("cargo cannot be run: {error}")));
                Self { group: None }
            }
            Ok(child) => {
                let group = Some(Pid::from_child(&child));
                thread::spawn(move || done(wait(child, &package)));
                Self { group }
            }
        }
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            // It may have ended already.
            let _ = kill_process_group(group, Signal::TERM);
        }
    }
}

fn wait(mut cargo: Child, package: &PackageId) -> Built {
    let component = cargo.stdout.take().and_then(|stdout| component(BufReader::new(stdout), package));
    match (cargo.wait(), component) {
        (Ok(status), _) if !status.success() => Built::Failed,
        (Ok(_), Some(path)) => match fs::read(&path) {
            Ok(wasm) => Built::Component(path, wasm.into()),
            Err(error) => Built::Impossible(format!("the component {path:?} cannot be read: {error}")),
        },
        (Ok(_), None) => Built::Impossible("cargo built no component of this package".to_owned()),
        (Err(error), _) => Built::Impossible(format!("cargo was lost: {error}")),
    }
}

/// The component of `package` among the things that cargo made. Reads to the end.
fn component(messages: impl io::BufRead, package: &PackageId) -> Option<PathBuf> {
    let mut found = None;
    for message in Message::parse_stream(messages).map_while(Result::ok) {
        if let Message::CompilerArtifact(made) = message
            && made.package_id == *package
        {
            let wasm = made.filenames.into_iter().find(|file| file.extension() == Some("wasm"));
            found = wasm.map(PathBuf::from).or(found);
        }
    }
    found
}
