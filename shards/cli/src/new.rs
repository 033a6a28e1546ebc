//! `wasmkeep new`: a project of one actor that builds without anything but crates.
//!
//! The SDK and the contract are on no registry: they are part of this binary, and go into the project.

use std::{fs, io, path::Path};

use include_dir::{Dir, include_dir};
use wasmkeep_protocol::ActorClass;

use crate::{
    args::{Lang, New},
    exit::{Failure, Status},
    say,
};

static SDK: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../engine/sdk/src");
static CONTRACT: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../engine/wit");

/// Files of a project in Rust; a `{{name}}` in them is replaced.
const RUST: [(&str, &str); 5] = [
    ("Cargo.toml", include_str!("../templates/rust/Cargo.toml.in")),
    ("src/lib.rs", include_str!("../templates/rust/src/lib.rs.in")),
    ("README.md", include_str!("../templates/rust/README.md.in")),
    (".gitignore", include_str!("../templates/rust/gitignore")),
    ("wasmkeep/sdk/Cargo.toml", include_str!("../templates/rust/sdk.toml")),
];

/// Names that a crate cannot have or that mean another one to it.
const TAKEN: [&str; 12] = [
    "alloc",
    "build",
    "core",
    "crate",
    "deps",
    "examples",
    "proc-macro",
    "self",
    "std",
    "super",
    "test",
    "wasmkeep-sdk",
];

/// Makes the project in a new folder of its name, here.
///
/// # Errors
/// One sentence and the status of the process.
pub fn new(flags: &New) -> Result<(), Failure> {
    let New { name, lang: Lang::Rust } = flags;
    if TAKEN.contains(&name.as_str()) || is_keyword(name.as_str()) {
        let sentence = format!("a crate cannot be called {name}: choose another name");
        return Err(Failure::new(Status::Usage, sentence));
    }
    let folder = Path::new(name.as_str());
    if folder.exists() {
        let sentence = format!("{name} is here already: choose another name, or remove it");
        return Err(Failure::new(Status::Usage, sentence));
    }
    write(folder, name).map_err(|error| {
        Failure::new(Status::Output, format!("the project cannot be written to {folder:?}: {error}"))
    })?;
    say::answer(&format!(
        "made {name}/: an actor in Rust, with a test

  cd {name}
  wasmkeep dev     # builds and serves it, and does so again when a file changes
  cargo test       # its test, on this machine
"
    ))
}

fn write(folder: &Path, name: &ActorClass) -> io::Result<()> {
    for (path, text) in RUST {
        let text = text
            .replace("{{name}}", name.as_str())
            .replace("{{file}}", &name.as_str().replace('-', "_"))
            .replace("{{version}}", env!("CARGO_PKG_VERSION"));
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(path, text)?;
    }
    for (embedded, path) in [(&SDK, "wasmkeep/sdk/src"), (&CONTRACT, "wasmkeep/wit")] {
        let path = folder.join(path);
        fs::create_dir_all(&path)?;
        embedded.extract(path)?;
    }
    Ok(())
}

/// Words of Rust that are names of a class too; a crate of that name cannot be built.
fn is_keyword(name: &str) -> bool {
    const KEYWORDS: [&str; 42] = [
        "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn",
        "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop",
        "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "static",
        "struct", "trait", "true", "try", "type", "use", "while",
    ];
    KEYWORDS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line of `text` that declares `name`.
    fn declared<'a>(text: &'a str, name: &str) -> &'a str {
        text.lines().find(|line| line.split(" =").next() == Some(name)).unwrap_or_else(|| panic!("{name}"))
    }

    #[test]
    fn the_sdk_of_a_project_has_the_crates_and_features_of_the_one_it_is_a_copy_of() {
        let project = include_str!("../templates/rust/sdk.toml");
        let workspace = include_str!("../../../Cargo.toml");
        let sdk = include_str!("../../../engine/sdk/Cargo.toml");
        for name in ["wit-bindgen", "serde", "serde_json"] {
            let version = |line: &str| line.split('"').nth(1).unwrap().to_owned();
            assert_eq!(version(declared(project, name)), version(declared(workspace, name)), "{name}");
            assert!(
                sdk.contains(&format!("{name}.workspace")) || sdk.contains(&format!("{name} = {{ workspace"))
            );
        }
        assert_eq!(declared(project, "wit-bindgen"), declared(workspace, "wit-bindgen"));
        for name in ["default", "json", "websockets", "rust-version"] {
            assert_eq!(declared(project, name), declared(sdk, name), "{name}");
        }
        let dependencies = |text: &str| {
            let part = text.split("[dependencies]\n").nth(1).unwrap().split("\n[").next().unwrap();
            part.lines().filter(|line| line.contains('=')).count()
        };
        assert_eq!(dependencies(project), dependencies(sdk), "a dependency is missing");
    }

    #[test]
    fn a_project_holds_everything_it_names() {
        let folder = tempfile::tempdir().unwrap();
        let name: ActorClass = "guest-book".parse().unwrap();
        write(&folder.path().join("it"), &name).unwrap();
        let read = |path: &str| fs::read_to_string(folder.path().join("it").join(path)).unwrap();
        assert!(read("Cargo.toml").contains("name = \"guest-book\""));
        assert!(read("README.md").contains("release/guest_book.wasm"));
        for file in RUST.map(|(path, _)| read(path)) {
            assert!(!file.contains("{{"), "{file}");
        }
        assert!(read("wasmkeep/wit/actor.wit").contains("package wasmkeep:actor@"));
        assert!(read("wasmkeep/wit/deps/http.wit").contains("package wasi:http@"));
        assert!(read("wasmkeep/sdk/src/lib.rs").contains("macro_rules! actor"));
        assert!(read("wasmkeep/sdk/src/outbound/url.rs").contains("Target"));
    }
}
