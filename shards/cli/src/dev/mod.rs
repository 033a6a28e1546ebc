//! `wasmkeep dev`: builds the actor of the current folder, serves it, and does both again when a file changes.
//!
//! A new version is put into the running node: connections and data stay. What does not build leaves the version
//! before in place.

mod build;
mod project;
mod toolchain;
mod watch;

use std::{
    env,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
};

use wasmkeep_node::{
    Interrupt, Node,
    config::{ClassConfig, ComponentConfig},
};
use wasmkeep_protocol::{ActorClass, access::Rule, durability::Durability};

use self::{
    build::{Building, Built},
    project::Project,
    toolchain::Toolchain,
};
use crate::{
    args::Dev,
    exit::{Failure, Status},
    logs,
    serve::{Values, node_config, start, stop},
    signals,
};

enum Happening {
    /// A source.
    Changed,
    Built(Built),
    /// The process is to end.
    Signal,
}

/// Builds and serves until the process is told to stop.
///
/// # Errors
/// One sentence and the status of the process.
pub fn dev(flags: Dev) -> Result<(), Failure> {
    let folder = env::current_dir().map_err(|error| {
        Failure::new(Status::Usage, format!("the current folder cannot be used: {error}"))
    })?;
    let project = Project::read(&folder)?;
    let toolchain = Toolchain::find(&folder)?;
    let class = flags.class.clone().map_or_else(|| project.class(), Ok)?;
    let env = Values::read(&flags.env)?.of(Some(&class));
    let (sender, happenings) = mpsc::channel();
    let told = signals::take()?;
    forward(told.clone(), &sender);
    let changed = sender.clone();
    // The receiver is gone only when the process ends.
    let tell = move || drop(changed.send(Happening::Changed));
    watch::watch(project.sources.clone(), project.target_dir.clone(), tell).map_err(|error| {
        Failure::new(Status::Internal, format!("{folder:?} cannot be watched for changes: {error}"))
    })?;
    if toolchain.compiles_std() {
        talk(
            "the first build compiles Rust's standard library for WebAssembly, once for all projects: minutes",
        );
    }
    let mut session = Session {
        folder,
        project,
        toolchain,
        class,
        env,
        flags,
        told,
        sender,
        building: None,
        again: false,
        node: None,
    };
    session.build();
    while let Ok(happening) = happenings.recv() {
        match happening {
            Happening::Changed => session.changed(),
            Happening::Built(built) => session.built(built)?,
            Happening::Signal => break,
        }
    }
    session.building = None;
    session.node.map_or(Ok(()), |serving| stop(serving.node))
}

/// Tells of the first signal.
fn forward(told: Interrupt, sender: &mpsc::Sender<Happening>) {
    let sender = sender.clone();
    thread::spawn(move || {
        told.wait();
        let _ = sender.send(Happening::Signal);
    });
}

/// What stands between a change and the node.
struct Session {
    folder: PathBuf,
    project: Project,
    toolchain: Toolchain,
    class: ActorClass,
    env: Arc<Vec<(String, String)>>,
    flags: Dev,
    told: Interrupt,
    sender: mpsc::Sender<Happening>,
    building: Option<Building>,
    /// Something changed while cargo ran.
    again: bool,
    node: Option<Serving>,
}

/// The node, once there is something to serve.
struct Serving {
    node: Node,
    wasm: Arc<[u8]>,
}

impl Session {
    fn build(&mut self) {
        let mut cargo = self.toolchain.build(&self.folder);
        if self.node.is_some() {
            // Only what is wrong is news.
            cargo.arg("--quiet");
        }
        let sender = self.sender.clone();
        let done = move |built| drop(sender.send(Happening::Built(built)));
        self.building = Some(Building::start(cargo, self.project.package.clone(), done));
    }

    fn changed(&mut self) {
        if self.building.is_some() {
            self.again = true;
        } else {
            self.build();
        }
    }

    fn built(&mut self, built: Built) -> Result<(), Failure> {
        self.building = None;
        match built {
            Built::Component(path, wasm) => self.serve(path, wasm)?,
            Built::Failed => talk(self.meanwhile()),
            Built::Impossible(sentence) => talk(&format!("{sentence}; {}", self.meanwhile())),
        }
        if std::mem::take(&mut self.again) {
            self.build();
        }
        Ok(())
    }

    /// What a failed build means.
    fn meanwhile(&self) -> &'static str {
        if self.node.is_some() {
            "the version before stays; the next change builds again"
        } else {
            "nothing is served yet; the next change builds again"
        }
    }

    fn serve(&mut self, path: PathBuf, wasm: Arc<[u8]>) -> Result<(), Failure> {
        let component = ComponentConfig { path, wasm: Arc::clone(&wasm), env: Arc::clone(&self.env) };
        match &mut self.node {
            Some(serving) if serving.wasm == wasm => {}
            Some(serving) => match serving.node.replace(&self.class, &component) {
                Ok(version) => {
                    serving.wasm = wasm;
                    talk(&format!("version {version}: each actor runs it from its next event on"));
                }
                Err(error) => talk(&format!("{error}; {}", self.meanwhile())),
            },
            None => self.node = Some(self.start(component)?),
        }
        Ok(())
    }

    fn start(&self, component: ComponentConfig) -> Result<Serving, Failure> {
        let wasm = Arc::clone(&component.wasm);
        let class = ClassConfig {
            class: self.class.clone(),
            component,
            access: Rule::Open,
            durability: Durability::default(),
        };
        let mut config = node_config(self.flags.node.clone(), vec![class], None)?;
        config.line_numbers = true;
        let data_dir = config.data_dir.clone();
        let node = start(config, &self.told)?;
        logs::announce(format!("listening on http://{}", node.address()));
        talk(&invitation(&self.class, &node.address().to_string(), &data_dir));
        Ok(Serving { node, wasm })
    }
}

fn invitation(class: &ActorClass, address: &str, data_dir: &Path) -> String {
    format!(
        "serving http://{address}/actor/{class}/NAME, any NAME; data stays in {}; Ctrl-C ends it",
        data_dir.display()
    )
}

/// Stdout is for data; this is talk.
fn talk(sentence: &str) {
    logs::say(sentence);
}
