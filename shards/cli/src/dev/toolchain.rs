//! What builds components on this machine: rustup's wasm32-wasip2 target, or Debian's Rust, which brings the
//! standard library as source. `scripts/lib/guest-toolchain.sh` does the same for the samples.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use crate::exit::{Failure, Status};

const TARGET: &str = "wasm32-wasip2";

/// Where Debian's wasi-libc keeps what std links against.
const DEBIAN_LIBC: &str = "/usr/lib/wasm32-wasi";

const MISSING: &str = "nothing here builds WebAssembly components: run `rustup target add wasm32-wasip2`, or on \
                       Debian `apt-get install rustc-web cargo-web rust-web-src wasi-libc`";

/// A way to build components.
#[derive(Debug)]
pub(super) enum Toolchain {
    /// An ordinary cargo.
    Rustup,
    /// Debian's, with the linker of rustup's toolchain, since its own makes no components.
    Debian {
        /// The folder of `wasm-component-ld` and of its `gcc-ld`.
        linkers: PathBuf,
        /// Where everything is built, for all projects: the standard library is compiled once.
        target_dir: PathBuf,
    },
}

impl Toolchain {
    /// The one to use in `folder`, where a file may choose between rustup's.
    ///
    /// # Errors
    /// What to install.
    pub(super) fn find(folder: &Path) -> Result<Self, Failure> {
        let libraries = printed(folder, &["target-libdir", "--target", TARGET]);
        if libraries.is_some_and(|libraries| libraries.is_dir()) {
            return Ok(Self::Rustup);
        }
        Self::debian(folder).ok_or_else(|| Failure::new(Status::Toolchain, MISSING))
    }

    fn debian(folder: &Path) -> Option<Self> {
        let sysroot = Command::new("/usr/bin/rustc").args(["--print", "sysroot"]).output().ok()?;
        let sysroot = String::from_utf8(sysroot.stdout).ok()?;
        let source = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/std");
        let parts = [source, Path::new("/usr/bin/cargo").into(), Path::new(DEBIAN_LIBC).join("libc.a")];
        let host = printed(folder, &["host-tuple"])?;
        let linkers = printed(folder, &["sysroot"])?.join("lib/rustlib").join(host).join("bin");
        let whole = parts.iter().all(|part| part.exists()) && linkers.join("wasm-component-ld").exists();
        whole.then(|| Self::Debian { linkers, target_dir: cache_dir().join("dev") })
    }

    /// Whether what a first build compiles takes minutes.
    pub(super) fn compiles_std(&self) -> bool {
        match self {
            Self::Rustup => false,
            Self::Debian { target_dir, .. } => !target_dir.join(TARGET).exists(),
        }
    }

    /// `cargo build` of the package in `folder`.
    pub(super) fn build(&self, folder: &Path) -> Command {
        let mut cargo = match self {
            Self::Rustup => {
                let mut cargo = Command::new("cargo");
                cargo.arg("build");
                cargo
            }
            Self::Debian { linkers, target_dir } => {
                let flags = format!("-L native={DEBIAN_LIBC} -C link-self-contained=no");
                let mut cargo = Command::new("/usr/bin/cargo");
                cargo
                    .args(["build", "-Zbuild-std=std,panic_abort", "--target-dir"])
                    .arg(target_dir)
                    // They would take the place of the flags below, or of the compiler.
                    .env_remove("RUSTFLAGS")
                    .env_remove("CARGO_ENCODED_RUSTFLAGS")
                    .env("RUSTC", "/usr/bin/rustc")
                    .env("RUSTC_BOOTSTRAP", "1")
                    .env("PATH", prepended(&linkers.join("gcc-ld")))
                    .env("CARGO_TARGET_WASM32_WASIP2_LINKER", linkers.join("wasm-component-ld"))
                    .env("CARGO_TARGET_WASM32_WASIP2_RUSTFLAGS", flags);
                cargo
            }
        };
        cargo.args(["--lib", "--target", TARGET]).current_dir(folder);
        cargo
    }
}

/// What rustc prints, as a path.
fn printed(folder: &Path, what: &[&str]) -> Option<PathBuf> {
    let output = Command::new("rustc").arg("--print").args(what).current_dir(folder).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().into())
}

fn prepended(folder: &Path) -> std::ffi::OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_owned()).chain(env::split_paths(&path));
    // A folder with a colon in its name was no part of a PATH before either.
    env::join_paths(folders).unwrap_or(path)
}

/// Where things are kept that can be made again, for all projects of the user.
fn cache_dir() -> PathBuf {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let under = |folder: PathBuf| folder.join("wasmkeep");
    set("WASMKEEP_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(under))
        .or_else(|| set("HOME").map(|home| under(home.join(".cache"))))
        .unwrap_or_else(|| under(env::temp_dir()))
}
