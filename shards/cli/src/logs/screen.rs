//! Stderr where lines and a moving one are written: on a terminal, what takes long is shown by a line that moves, and log
//! lines go above it.

use std::{
    any::Any,
    io::{self, Write},
    os::fd::{AsFd, BorrowedFd},
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use indicatif::{BinaryBytes, ProgressBar, ProgressStyle};

/// The line that moves.
static MOVING: Mutex<Option<ProgressBar>> = Mutex::new(None);

fn moving() -> std::sync::MutexGuard<'static, Option<ProgressBar>> {
    MOVING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stderr.
#[derive(Debug)]
pub(super) struct Screen(io::Stderr);

impl Default for Screen {
    fn default() -> Self {
        Self(io::stderr())
    }
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bar = moving().clone();
        match bar {
            Some(bar) => bar.suspend(|| self.0.write(bytes)),
            None => self.0.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl AsFd for Screen {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Shows, on a terminal only, what is being compiled and for how long, until the value is dropped.
pub fn while_compiling(component: &Path, bytes: usize) -> Box<dyn Any> {
    struct Shown(ProgressBar);
    impl Drop for Shown {
        fn drop(&mut self) {
            *moving() = None;
            self.0.finish_and_clear();
        }
    }
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} compiling {msg}, {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message(format!("{} ({})", component.display(), BinaryBytes(bytes as u64)));
    bar.enable_steady_tick(Duration::from_millis(100));
    *moving() = Some(bar.clone());
    Box::new(Shown(bar))
}
