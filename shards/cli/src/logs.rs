//! Where log lines go: text for a person at a terminal, JSON for everything else. Always on stderr: stdout is
//! for data.

use std::io::{self, IsTerminal};

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// The variable that chooses what is logged, as in `WASMKEEP_LOG=debug`.
pub const FILTER_VARIABLE: &str = "WASMKEEP_LOG";

/// Starts logging for the process.
pub fn start() {
    let filter = EnvFilter::builder()
        .with_env_var(FILTER_VARIABLE)
        .with_default_directive(tracing::Level::INFO.into())
        .from_env_lossy();
    let registry = tracing_subscriber::registry().with(filter);
    // A second start would be a bug of ours, and the first one goes on.
    let _ = if io::stderr().is_terminal() {
        registry.with(fmt::layer().with_writer(io::stderr).with_target(false)).try_init()
    } else {
        registry.with(fmt::layer().json().flatten_event(true).with_writer(io::stderr)).try_init()
    };
}
