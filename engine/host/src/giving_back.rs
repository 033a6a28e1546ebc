//! When memory of instances that ended goes back to the system: several pieces in one go, since each time interrupts
//! every core that runs this process.
//!
//! Owns how many pieces, and that a large memory does not wait for others. Collecting them is wasmtime's.

use wasmtime::{Engine, Instance, Module, Store};

/// Pieces of memory that go back in one go. An instance has three or four, so what the last two or three to end on a
/// thread had may stay until another ends there.
pub(crate) const PIECES: usize = 8;

/// An instance with so much memory, in bytes as the guest sees it, is not waited with.
const LARGE_BYTES: usize = 4 << 20;

/// `(module (memory 1))`: one piece.
const ONE_PIECE: &[u8] = b"\0asm\x01\0\0\0\x05\x03\x01\0\x01";

/// Has what waits go back at once.
pub(crate) struct GivingBack {
    engine: Engine,
    piece: Module,
}

impl GivingBack {
    pub(crate) fn new(engine: &Engine) -> wasmtime::Result<Self> {
        Ok(Self { engine: engine.clone(), piece: Module::new(engine, ONE_PIECE)? })
    }

    /// After the end of an instance that had so much memory.
    pub(crate) fn ended(&self, memory_bytes: usize) {
        if memory_bytes < LARGE_BYTES {
            return;
        }
        for _ in 0..PIECES {
            // Where no slot is left wasmtime gives back by itself what waits, and tries again.
            let _ = Instance::new(Store::new(&self.engine, ()), &self.piece, &[]);
        }
    }
}
