//! Standard output and error of actors: whole lines go to the node's log under the actor's name, at a bounded
//! length and rate, so that an actor that prints without end costs a full buffer and no disk.

use std::{
    future::Future,
    io, mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Instant,
};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::{
    cli::{IsTerminal, StdoutStream},
    p2::{OutputStream, Pollable, StreamResult},
};

use crate::{ahead::Asked, state::Identity};

/// Longest line, in bytes; the rest of a longer one becomes further lines. A log line past this is data.
const LINE_BYTES_MAX: usize = 8 << 10;

/// Lines an actor may write per second, and at once after a quiet second. A noisy actor must not drown its
/// neighbours' lines; what is over it is counted and said.
const LINES_PER_SECOND: u32 = 200;

/// Bytes the guest may hand over in one write.
const WRITE_BYTES_MAX: usize = 64 << 10;

/// Logs a line of a guest. Only actors have a class: what has none is the node's stateless component.
macro_rules! say {
    ($level:ident, $identity:expr, $($text:tt)+) => {{
        let Identity { class, name, .. } = $identity;
        if class.is_empty() {
            tracing::$level!(target: "stateless", component = name, $($text)+);
        } else {
            tracing::$level!(target: "actor", class, name, $($text)+);
        }
    }};
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output: level info.
    Out,
    /// Standard error: level warn.
    Err,
}

/// Where the lines of one actor go.
pub(crate) struct ActorLog {
    state: Mutex<State>,
}

struct State {
    identity: Arc<Identity>,
    /// Of an instance that is nobody's: there is no name to write under.
    asked: Option<Asked>,
    out: Vec<u8>,
    err: Vec<u8>,
    budget: Budget,
}

/// Lines left, refilled with time.
struct Budget {
    lines: u32,
    refilled: Instant,
    suppressed: u64,
}

impl Budget {
    fn new(now: Instant) -> Self {
        Self { lines: LINES_PER_SECOND, refilled: now, suppressed: 0 }
    }

    /// Takes one line; gives the number of lines lost since the last one that was let through.
    fn take(&mut self, now: Instant) -> Option<u64> {
        if now.duration_since(self.refilled).as_secs() >= 1 {
            self.lines = LINES_PER_SECOND;
            self.refilled = now;
        }
        if self.lines == 0 {
            self.suppressed += 1;
            return None;
        }
        self.lines -= 1;
        Some(mem::take(&mut self.suppressed))
    }
}

impl ActorLog {
    pub(crate) fn new(identity: Arc<Identity>, asked: Option<Asked>) -> Arc<Self> {
        let (out, err) = (Vec::new(), Vec::new());
        let state = State { identity, asked, out, err, budget: Budget::new(Instant::now()) };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// The lines are this actor's from now on.
    pub(crate) fn claim(&self, identity: &Arc<Identity>) {
        let mut state = self.state();
        state.identity = Arc::clone(identity);
        state.asked = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panicking log subscriber leaves whole state behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, stream: Stream, mut bytes: &[u8]) {
        let mut state = self.state();
        if let Some(asked) = &state.asked {
            return asked.note();
        }
        while !bytes.is_empty() {
            let State { identity, out, err, budget, .. } = &mut *state;
            let line = if stream == Stream::Out { out } else { err };
            let room = LINE_BYTES_MAX - line.len();
            let window = &bytes[..bytes.len().min(room)];
            if let Some(end) = window.iter().position(|byte| *byte == b'\n') {
                line.extend_from_slice(&window[..end]);
                bytes = &bytes[end + 1..];
                emit(identity, stream, line, budget);
            } else {
                line.extend_from_slice(window);
                bytes = &bytes[window.len()..];
                if line.len() == LINE_BYTES_MAX {
                    emit(identity, stream, line, budget);
                }
            }
        }
    }

    /// Writes out lines that were begun and not ended; called when an event ends.
    pub(crate) fn flush(&self) {
        let mut state = self.state();
        let State { identity, out, err, budget, .. } = &mut *state;
        for (stream, line) in [(Stream::Out, out), (Stream::Err, err)] {
            if !line.is_empty() {
                emit(identity, stream, line, budget);
            }
        }
    }

    /// Says why an event of this actor ended badly, counted against the same rate.
    pub(crate) fn failure(&self, what: &str, detail: &dyn std::fmt::Display) {
        let mut state = self.state();
        if let Some(asked) = &state.asked {
            return asked.note();
        }
        if state.budget.take(Instant::now()).is_some() {
            say!(warn, &*state.identity, "{what}: {detail}");
        }
    }

    pub(crate) fn stream(self: &Arc<Self>, stream: Stream) -> LogStream {
        LogStream { log: Arc::clone(self), stream }
    }
}

fn emit(identity: &Identity, stream: Stream, line: &mut Vec<u8>, budget: &mut Budget) {
    // Taken, not cleared: an idle actor keeps no buffer.
    let line = mem::take(line);
    let Some(suppressed) = budget.take(Instant::now()) else { return };
    if suppressed > 0 {
        say!(warn, identity, "{suppressed} lines were left out: over {LINES_PER_SECOND} a second");
    }
    let line = String::from_utf8_lossy(&line);
    let line = line.strip_suffix('\r').unwrap_or(&line);
    match stream {
        Stream::Out => say!(info, identity, "{line}"),
        Stream::Err => say!(warn, identity, "{line}"),
    }
}

/// One of an actor's two streams.
#[derive(Clone)]
pub(crate) struct LogStream {
    log: Arc<ActorLog>,
    stream: Stream,
}

impl IsTerminal for LogStream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for LogStream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl Pollable for LogStream {
    fn ready<'life, 'async_trait>(&'life mut self) -> Pin<Box<dyn Future<Output = ()> + Send + 'async_trait>>
    where
        'life: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(std::future::ready(()))
    }
}

impl OutputStream for LogStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.log.write(self.stream, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_BYTES_MAX)
    }
}

impl AsyncWrite for LogStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.log.write(self.stream, bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
