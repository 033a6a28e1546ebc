//! The signals that end the process: the first stops what it does in order, the second ends it at once.

use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
    thread,
};

use signal_hook::{consts::TERM_SIGNALS, flag, iterator::Signals};
use wasmkeep_node::Interrupt;

use crate::exit::{Failure, Status};

/// Takes the signals from now on; raised by the first.
///
/// # Errors
/// When they cannot be taken.
pub fn take() -> Result<Interrupt, Failure> {
    let failed =
        |error: io::Error| Failure::new(Status::Internal, format!("signals cannot be handled: {error}"));
    let came = Arc::new(AtomicBool::new(false));
    for &signal in TERM_SIGNALS {
        // In this order: the second finds what the first left. It works whatever the process is doing.
        flag::register_conditional_shutdown(signal, i32::from(Status::CutShort as u8), Arc::clone(&came))
            .map_err(failed)?;
        flag::register(signal, Arc::clone(&came)).map_err(failed)?;
    }
    let mut signals = Signals::new(TERM_SIGNALS).map_err(failed)?;
    let (raise, interrupt) = Interrupt::new();
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            signals.forever().next();
            drop(raise);
        })
        .map_err(failed)?;
    Ok(interrupt)
}
