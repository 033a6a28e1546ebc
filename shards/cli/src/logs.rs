//! Where log lines go: text for a person at a terminal, JSON for everything else. Always on stderr: stdout is
//! for data. No thread waits for whoever reads them ([`queue`]).

mod queue;
mod screen;

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    io::{self, IsTerminal, Write},
    panic::PanicHookInfo,
    sync::{Arc, OnceLock, atomic::AtomicU64, mpsc},
    thread,
    time::{Duration, SystemTime},
};

use chrono::{DateTime, SecondsFormat, Utc};
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

pub use self::screen::while_compiling;
use self::{
    queue::{LogQueue, LossLine, QUEUE_BYTES_MAX},
    screen::Screen,
};

/// The variable that chooses what is logged, as in `WASMKEEP_LOG=debug`.
pub const FILTER_VARIABLE: &str = "WASMKEEP_LOG";

/// How long the process waits at its end, or for its first line on stdout, for someone who reads.
const READ_WITHIN: Duration = Duration::from_secs(1);

const LOSS: &str = "log lines were lost: they came faster than stderr was read";

static QUEUE: OnceLock<LogQueue> = OnceLock::new();

/// Who reads the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// A person, wherever it goes.
    Person,
    /// A person if stderr is a terminal, else a program.
    OfStderr,
}

/// Starts logging for the process. Panics are logged too, with where they were.
pub fn start(reader: Reader) {
    let is_terminal = io::stderr().is_terminal();
    let is_text = is_terminal || reader == Reader::Person;
    let loss_line: LossLine = if is_text { loss_as_text } else { loss_as_json };
    // Without the thread nothing is logged: a process that has no thread for it does not come far either.
    let Ok(queue) = LogQueue::start(Screen::default(), QUEUE_BYTES_MAX, loss_line) else { return };
    let queue = QUEUE.get_or_init(|| queue).clone();
    let builder = EnvFilter::builder()
        .with_env_var(FILTER_VARIABLE)
        .with_default_directive(tracing::Level::INFO.into());
    let (filter, wrong) = match builder.try_from_env() {
        Ok(filter) => (filter, None),
        Err(_) if std::env::var_os(FILTER_VARIABLE).is_none() => (EnvFilter::new("info"), None),
        Err(error) => (EnvFilter::new("info"), Some(error)),
    };
    let registry = tracing_subscriber::registry().with(filter);
    // A second start would be a bug of ours, and the first one goes on.
    let _ = if is_text {
        let lines = fmt::layer().with_writer(queue).with_target(false).with_ansi(is_terminal);
        registry.with(lines).try_init()
    } else {
        registry.with(fmt::layer().json().flatten_event(true).with_writer(queue)).try_init()
    };
    if let Some(wrong) = wrong {
        tracing::warn!("{FILTER_VARIABLE} is not used: {wrong}");
    }
    std::panic::set_hook(Box::new(log_panic));
}

/// Lines lost since the start, for whom counts them.
pub fn lost() -> Arc<AtomicU64> {
    QUEUE.get().map_or_else(Arc::default, |queue| Arc::clone(queue.lost()))
}

/// Says a sentence to a person on stderr, behind what was logged before.
pub fn say(sentence: impl std::fmt::Display) {
    if let Some(queue) = QUEUE.get() {
        queue.push(format!("wasmkeep: {sentence}\n").as_bytes());
    }
}

/// Waits for what was logged and said to be written, for a second if nobody reads. To be called before the end.
pub fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(READ_WITHIN);
    }
}

/// Writes a line to stdout for whoever started a node. A stdout that is closed, full or not read costs the line and
/// nothing else: the node serves.
pub fn announce(line: String) {
    let (written, wait) = mpsc::channel::<()>();
    thread::spawn(move || {
        let mut stdout = io::stdout().lock();
        if let Err(error) = writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
            tracing::warn!("stdout cannot be written: {error}");
        }
        drop(written);
    });
    // Nothing is ever sent: the end of the sender is the answer.
    let _ = wait.recv_timeout(READ_WITHIN);
}

/// The standard hook writes to stderr itself, which may block a shard or panic again.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let text = panic.payload_as_str().unwrap_or("with something that is no text");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let thread = thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        tracing::error!(thread, place, "panicked: {text}\n{backtrace}");
    } else {
        tracing::error!(thread, place, "panicked: {text}");
    }
}

fn loss_as_text(lines: u64) -> Vec<u8> {
    let now = now();
    format!("{now}  WARN {LOSS} lost={lines}\n").into_bytes()
}

fn loss_as_json(lines: u64) -> Vec<u8> {
    let line = serde_json::json!({
        "timestamp": now(), "level": "WARN", "message": LOSS, "lost": lines, "target": "wasmkeep::logs",
    });
    format!("{line}\n").into_bytes()
}

fn now() -> String {
    DateTime::<Utc>::from(SystemTime::now()).to_rfc3339_opts(SecondsFormat::Micros, true)
}
