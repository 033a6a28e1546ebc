//! Ways to run into a limit.

use std::{
    hint::black_box,
    process, thread,
    time::{Duration, Instant},
};

use wasmkeep_sdk::{Request, Response, Result};

use crate::{Routed, number};

/// The unit in which linear memory grows.
const WASM_PAGE_BYTES: usize = 64 << 10;

pub(crate) fn route(request: Request) -> Routed {
    Routed::Answer(match request.path() {
        "/spin" => spin_for(&request),
        "/sleep" => sleep(&request),
        "/trap" => trap(),
        "/panic" => panic!("asked to panic"),
        "/exit" => number(&request, "code", 0).map(|code| process::exit(code)),
        "/recurse" => Ok(Response::text(format!("{}\n", recurse(1)))),
        "/grow" => grow(&request),
        _ => return Routed::Elsewhere(request),
    })
}

/// Ends the instance as a fault of its code does.
pub(crate) fn trap() -> ! {
    #[cfg(target_arch = "wasm32")]
    core::arch::wasm32::unreachable();
    #[cfg(not(target_arch = "wasm32"))]
    unreachable!("it runs as a component")
}

/// Computes for ever, without a call of the host.
pub(crate) fn spin() -> ! {
    let mut turns = 0u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

/// Computes for `ms` milliseconds, or for ever.
fn spin_for(request: &Request) -> Result<Response> {
    let ms: u64 = number(request, "ms", 0)?;
    if ms == 0 {
        spin();
    }
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(ms) {
        black_box((0..10_000u64).fold(0, |sum, turn| black_box(sum ^ turn)));
    }
    Ok(Response::text("done\n"))
}

fn sleep(request: &Request) -> Result<Response> {
    thread::sleep(Duration::from_millis(number(request, "ms", 1000)?));
    Ok(Response::text("awake\n"))
}

/// Calls itself until the stack ends.
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    if depth == u64::MAX { depth } else { recurse(depth + 1).wrapping_add(frame[7]) }
}

/// Asks for `mib` MiB of linear memory, and says whether it got them and what it has.
fn grow(request: &Request) -> Result<Response> {
    let pages = number::<usize>(request, "mib", 1)? * ((1 << 20) / WASM_PAGE_BYTES);
    let (granted, held) = grow_memory(pages);
    let answer = if granted { "granted" } else { "refused" };
    Ok(Response::text(format!("{answer}, {} KiB\n", held * (WASM_PAGE_BYTES >> 10))))
}

#[cfg(target_arch = "wasm32")]
fn grow_memory(pages: usize) -> (bool, usize) {
    let granted = core::arch::wasm32::memory_grow(0, pages) != usize::MAX;
    (granted, core::arch::wasm32::memory_size(0))
}

#[cfg(not(target_arch = "wasm32"))]
fn grow_memory(_pages: usize) -> (bool, usize) {
    (false, 0)
}
