//! Where log lines go: text for a person at a terminal, JSON for everything else. Always on stderr: stdout is
//! for data.

use std::io::{self, IsTerminal};

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// The variable that chooses what is logged, as in `WASMKEEP_LOG=debug`.
pub const FILTER_VARIABLE: &str = "WASMKEEP_LOG";

/// Who reads the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// A person, wherever it goes.
    Person,
    /// A person if stderr is a terminal, else a program.
    OfStderr,
}

/// Starts logging for the process.
pub fn start(reader: Reader) {
    let filter = EnvFilter::builder()
        .with_env_var(FILTER_VARIABLE)
        .with_default_directive(tracing::Level::INFO.into())
        .from_env_lossy();
    let registry = tracing_subscriber::registry().with(filter);
    // A second start would be a bug of ours, and the first one goes on.
    let is_terminal = io::stderr().is_terminal();
    let _ = if is_terminal || reader == Reader::Person {
        let lines = fmt::layer().with_writer(io::stderr).with_target(false).with_ansi(is_terminal);
        registry.with(lines).try_init()
    } else {
        registry.with(fmt::layer().json().flatten_event(true).with_writer(io::stderr)).try_init()
    };
}
