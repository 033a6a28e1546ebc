//! The package in the current folder, as cargo sees it.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use cargo_metadata::{CrateType, Error, MetadataCommand, PackageId};
use wasmkeep_protocol::ActorClass;

use crate::exit::{Failure, Status};

const NO_CARGO: &str = "cargo is not installed, or not in PATH: install Rust from https://rustup.rs, then run \
                        `rustup target add wasm32-wasip2`";

/// A package that makes a component.
#[derive(Debug)]
pub(super) struct Project {
    pub(super) package: PackageId,
    pub(super) name: String,
    /// Folders whose files the component is made of.
    pub(super) sources: Vec<PathBuf>,
    /// Where an ordinary build of it writes.
    pub(super) target_dir: PathBuf,
}

impl Project {
    /// Reads `Cargo.toml` in `folder`.
    ///
    /// # Errors
    /// What the folder or the package lacks.
    pub(super) fn read(folder: &Path) -> Result<Self, Failure> {
        if !folder.join("Cargo.toml").exists() {
            let sentence = "there is no Cargo.toml here: make a project with `wasmkeep new NAME`, and run \
                            `wasmkeep dev` in its folder";
            return Err(Failure::new(Status::Usage, sentence));
        }
        let unusable = |sentence: String| Failure::new(Status::Usage, sentence);
        let metadata =
            MetadataCommand::new().current_dir(folder).no_deps().exec().map_err(|error| match error {
                Error::Io(error) if error.kind() == ErrorKind::NotFound => {
                    Failure::new(Status::Toolchain, NO_CARGO)
                }
                error => unusable(format!("cargo cannot read the project: {error}")),
            })?;
        let package = metadata.root_package().ok_or_else(|| {
            unusable("Cargo.toml here is of a workspace: run this in the folder of an actor".to_owned())
        })?;
        let is_component = |target: &&cargo_metadata::Target| target.crate_types.contains(&CrateType::CDyLib);
        if !package.targets.iter().any(|target| is_component(&target)) {
            let sentence = "Cargo.toml makes no component: add `crate-type = [\"cdylib\"]` under `[lib]`";
            return Err(unusable(sentence.to_owned()));
        }
        let near = package.dependencies.iter().filter_map(|used| used.path.clone().map(PathBuf::from));
        let sources = std::iter::once(folder.to_owned()).chain(near).collect();
        Ok(Self {
            package: package.id.clone(),
            name: package.name.to_string(),
            sources,
            target_dir: metadata.target_directory.clone().into(),
        })
    }

    /// The class it is served as.
    ///
    /// # Errors
    /// When its name is none.
    pub(super) fn class(&self) -> Result<ActorClass, Failure> {
        self.name.replace('_', "-").parse().map_err(|error| {
            let sentence = format!("{} is no class of actors ({error}): name one with --class", self.name);
            Failure::new(Status::Usage, sentence)
        })
    }
}
