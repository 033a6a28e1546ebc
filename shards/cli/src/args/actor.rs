//! Flags of `wasmkeep actor`.

use std::{fmt, path::PathBuf, str::FromStr};

use chrono::{DateTime, SecondsFormat, Utc};
use clap::{Args, Subcommand};
use wasmkeep_protocol::{ActorClass, ActorId, ActorName, Tenant};

use super::Bucket;

/// `wasmkeep actor`
#[derive(Debug, Subcommand)]
pub enum ActorCommand {
    /// Show an actor's history: its owner, files, snapshots, and what a restore would read.
    ///
    /// Reads names and sizes only; `wasmkeep actor verify` reads the files too.
    Inspect(Inspect),
    /// Write an actor's database, as it is or as it was, to a file or to a Litestream replica.
    ///
    /// The actor is not disturbed: only the bucket is read.
    Export(Export),
    /// Read every file of an actor's history and check it and the chain they form.
    Verify(Verify),
}

/// `wasmkeep actor inspect`
#[derive(Debug, Args)]
pub struct Inspect {
    /// The actor.
    #[arg(value_name = "TENANT/CLASS/NAME")]
    pub actor: ActorPath,
    /// Its bucket.
    #[command(flatten)]
    pub bucket: Bucket,
    /// List every file.
    #[arg(long)]
    pub files: bool,
    /// Write one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `wasmkeep actor export`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("target").required(true))]
pub struct Export {
    /// The actor.
    #[arg(value_name = "TENANT/CLASS/NAME")]
    pub actor: ActorPath,
    /// Its bucket.
    #[command(flatten)]
    pub bucket: Bucket,
    /// The state to write: a transaction's number, or a time like 2026-11-30T02:00:00Z for the last transaction
    /// committed until then [default: the latest].
    #[arg(long, value_name = "TXID|TIME")]
    pub at: Option<At>,
    /// Write the database to this file, which must not exist.
    #[arg(short, long, value_name = "FILE.db", group = "target")]
    pub output: Option<PathBuf>,
    /// Write a Litestream replica to this folder, which must not exist.
    #[arg(long, value_name = "DIR", group = "target")]
    pub litestream: Option<PathBuf>,
    /// Permissions of what is written, in octal; folders may be entered by who may read.
    #[arg(long, value_name = "MODE", default_value = "600")]
    pub mode: FileMode,
    /// Write one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Show no progress.
    #[arg(short, long)]
    pub quiet: bool,
}

/// `wasmkeep actor verify`
#[derive(Debug, Args)]
pub struct Verify {
    /// The actor.
    #[arg(value_name = "TENANT/CLASS/NAME")]
    pub actor: ActorPath,
    /// Its bucket.
    #[command(flatten)]
    pub bucket: Bucket,
    /// Write one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Show no progress.
    #[arg(short, long)]
    pub quiet: bool,
}

/// An actor of a tenant: `TENANT/CLASS/NAME`. Everything after the second slash is the name, as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActorPath {
    /// Whose it is.
    pub tenant: Tenant,
    /// Which one.
    pub actor: ActorId,
}

impl FromStr for ActorPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(3, '/');
        let (Some(tenant), Some(class), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("write it as TENANT/CLASS/NAME; nodes without --app use the tenant 'default'".into());
        };
        let tenant = tenant.parse().map_err(|error| format!("the tenant '{tenant}': {error}"))?;
        let class: ActorClass = class.parse().map_err(|error| format!("the class '{class}': {error}"))?;
        let name: ActorName = name.parse().map_err(|error| format!("the name '{name}': {error}"))?;
        Ok(Self { tenant, actor: ActorId { class, name } })
    }
}

impl fmt::Display for ActorPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant, self.actor)
    }
}

/// Permissions of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMode(pub u32);

impl FileMode {
    /// Those of a folder whose files have these.
    pub fn of_folder(self) -> u32 {
        self.0 | (self.0 & 0o444) >> 2
    }
}

impl FromStr for FileMode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        match u32::from_str_radix(text, 8) {
            Ok(mode) if mode & !0o666 == 0 && mode & 0o600 == 0o600 => Ok(Self(mode)),
            _ => Err("write it in octal, readable and writable by its owner, like 600, 640 or 644"),
        }
    }
}

/// A state of a database, as a person names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// After this transaction.
    Transaction(u64),
    /// After the last transaction committed until then.
    Time(DateTime<Utc>),
}

impl FromStr for At {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const WANTED: &str =
            "write a transaction's number, or a time with its zone like 2026-11-30T02:00:00Z";
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().map(Self::Transaction).map_err(|_| WANTED);
        }
        let time = DateTime::parse_from_rfc3339(text).map_err(|_| WANTED)?;
        Ok(Self::Time(time.to_utc()))
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transaction(txid) => write!(f, "transaction {txid}"),
            Self::Time(time) => f.write_str(&time.to_rfc3339_opts(SecondsFormat::AutoSi, true)),
        }
    }
}
