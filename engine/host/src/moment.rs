//! Clocks and chance that tell when a guest asks for them.

use std::{
    convert::Infallible,
    time::{Duration, Instant, SystemTime},
};

use rand::{Rng as _, TryRng};
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtxBuilder};

use crate::ahead::Asked;

/// What asks for either is noted. The seed of hash tables is not: whatever comes of another one is as good.
pub(crate) fn watch(wasi: &mut WasiCtxBuilder, asked: &Asked) {
    wasi.wall_clock(Watched::new(asked))
        .monotonic_clock(Watched::new(asked))
        .secure_random(Watched::new(asked))
        .insecure_random(Watched::new(asked));
}

struct Watched {
    asked: Asked,
    began: Instant,
}

impl Watched {
    fn new(asked: &Asked) -> Self {
        Self { asked: asked.clone(), began: Instant::now() }
    }
}

impl HostWallClock for Watched {
    fn resolution(&self) -> Duration {
        Duration::from_nanos(1)
    }

    fn now(&self) -> Duration {
        self.asked.note();
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }
}

impl HostMonotonicClock for Watched {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        self.asked.note();
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl TryRng for Watched {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.asked.note();
        Ok(rand::rng().next_u32())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        self.asked.note();
        Ok(rand::rng().next_u64())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.asked.note();
        rand::rng().fill_bytes(bytes);
        Ok(())
    }
}
