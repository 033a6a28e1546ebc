//! The thread behind the sleeps and the outbound requests of guests. It keeps time and moves bytes: a guest's
//! code runs where its instance lives, and is woken from here.

use std::{io, thread};

use tokio::{runtime, sync::oneshot};

/// Threads that may look up names for outbound requests at a time: the system's resolver blocks for as long as
/// its servers are silent, and further requests then wait in line until they run out of time.
const LOOKUP_THREADS_MAX: usize = 16;

/// A Tokio runtime on a thread of its own whose clock drives `wasi:clocks` sleeps. Outbound requests of guests
/// run on it too. Dropping it stops the thread; sleeps that still wait then never end.
#[derive(Debug)]
pub struct Timers {
    handle: runtime::Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Timers {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system refuses a thread or a descriptor.
    pub fn start() -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(LOOKUP_THREADS_MAX)
            .thread_name("egress-lookup")
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::Builder::new().name("egress".into()).spawn(move || {
            // An error means the other end was dropped, which asks for the same.
            let _ = runtime.block_on(stopped);
            // A name server that is silent must not hold up the end.
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// For [`crate::Setting::timers`].
    #[must_use]
    pub fn handle(&self) -> runtime::Handle {
        self.handle.clone()
    }
}

impl Drop for Timers {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread runs no code of ours that could panic; nothing is left to tell.
            let _ = thread.join();
        }
    }
}
