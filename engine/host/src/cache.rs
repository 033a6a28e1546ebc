//! Compiled code on disk, so that a restart does not compile. One file per component and engine setting; a
//! file that is damaged, or was made by another build, is compiled anew.

use std::{
    fs,
    hash::{Hash, Hasher},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use wasmtime::{Engine, component::Component};

/// First bytes of every file; a new layout gets a new one.
const MAGIC: &[u8; 16] = b"wasmkeep-code-1\n";

/// Magic, then the SHA-256 of the rest.
const HEADER_BYTES: usize = MAGIC.len() + 32;

/// Why the cache's folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// It cannot be made or looked at.
    #[error("the folder for compiled code, {}, cannot be used: {source}", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Anyone could plant code there that the node would run.
    #[error("the folder for compiled code, {path}, is writable by every user; run: chmod o-w {path}", path = .0.display())]
    WritableByAll(PathBuf),
}

/// A folder of compiled components.
pub(crate) struct CodeCache {
    folder: PathBuf,
    /// Stands for everything of the engine that the code depends on.
    engine: u64,
}

/// FNV-1a, written out because the hash is part of a file's name and must be the same in every build.
struct StableHasher(u64);

impl Hasher for StableHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl CodeCache {
    /// Makes the folder where it is missing, for this user alone.
    pub(crate) fn open(folder: &Path, engine: &Engine) -> Result<Self, CacheError> {
        let io = |source| CacheError::Io { path: folder.to_owned(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io)?;
        let mode = fs::metadata(folder).map_err(io)?.permissions().mode();
        if mode & 0o002 != 0 {
            return Err(CacheError::WritableByAll(folder.to_owned()));
        }
        let mut hasher = StableHasher(0xcbf2_9ce4_8422_2325);
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Ok(Self { folder: folder.to_owned(), engine: hasher.finish() })
    }

    fn path(&self, digest: &str) -> PathBuf {
        self.folder.join(format!("{digest}-{:016x}.bin", self.engine))
    }

    /// Whether there is a file of it, whole or not.
    pub(crate) fn has(&self, digest: &str) -> bool {
        self.path(digest).exists()
    }

    /// The compiled component, if there is a whole one.
    pub(crate) fn load(&self, engine: &Engine, digest: &str) -> Option<Component> {
        let path = self.path(digest);
        let file = match fs::read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "compiled code cannot be read; compiling");
                return None;
            }
        };
        let Some(code) = checked(&file) else {
            tracing::warn!(path = %path.display(), "compiled code is damaged; compiling again");
            return None;
        };
        // SAFETY: `deserialize` runs what it is given as machine code, so the bytes must be what
        // `Component::serialize` gave. The file was written by `store` below (only its user may write to the
        // folder, checked at `open`), its SHA-256 shows that it was not damaged or cut since, and wasmtime
        // itself refuses code of another version, target or setting.
        match unsafe { Component::deserialize(engine, code) } {
            Ok(component) => Some(component),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "compiled code does not fit; compiling again");
                None
            }
        }
    }

    /// Keeps a compiled component. It is only a cache: a failure is logged and otherwise changes nothing.
    pub(crate) fn store(&self, component: &Component, digest: &str) {
        let path = self.path(digest);
        if let Err(error) = self.write(component, &path) {
            tracing::warn!(path = %path.display(), error = %format!("{error:#}"), "compiled code is not kept");
        }
    }

    fn write(&self, component: &Component, path: &Path) -> wasmtime::Result<()> {
        let code = component.serialize()?;
        // Renamed when whole: another node or shard may read at any time.
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(&self.folder)?;
        file.write_all(MAGIC)?;
        file.write_all(&Sha256::digest(&code))?;
        file.write_all(&code)?;
        file.persist(path)?;
        Ok(())
    }
}

/// The code in a whole, undamaged file.
fn checked(file: &[u8]) -> Option<&[u8]> {
    let (header, code) = file.split_at_checked(HEADER_BYTES)?;
    let (magic, digest) = header.split_at(MAGIC.len());
    (magic == MAGIC && digest == &Sha256::digest(code)[..]).then_some(code)
}
