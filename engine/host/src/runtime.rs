//! The one wasmtime engine of a node: its settings, the linkers and the code cache.

use std::{path::PathBuf, sync::Arc};

use wasmtime::{Config, Engine, OptLevel, PoolingAllocationConfig, WasmBacktraceDetails, component::Linker};

pub use crate::cache::CacheError;
use crate::{
    cache::CodeCache,
    giving_back::{self, GivingBack},
    imports,
    load::{self, LoadError, Version},
    stack::CALL_STACK_BYTES,
    state::{ActorState, TABLE_ELEMENTS_MAX},
};

/// Stack a guest's own frames may use, in bytes, of [`CALL_STACK_BYTES`]. wasmtime's default, which toolchains are
/// tested with.
const WASM_STACK_BYTES: usize = 512 << 10;

/// Address space that a memory slot may take so that compiled code needs no bounds checks, in bytes.
const UNCHECKED_RESERVATION: u64 = 4 << 30;

/// Address space the pool of memories may take: a quarter of what a process has on x86-64 (128 TiB), so that
/// an ordinary node (10,000 actors: 40 TiB) gets code without bounds checks and a huge one still starts.
const POOL_ADDRESS_BYTES: u64 = 48 << 40;

/// Linear memories one component may have. Toolchains make one, composed components one each.
const MEMORIES_PER_COMPONENT: u32 = 4;

/// Tables one component may have: one for its module and one for the shim of its imports, one each if composed.
const TABLES_PER_COMPONENT: u32 = 8;

/// Core modules instantiated per component: main, adapter, shim and fix-up, more if composed.
const CORE_INSTANCES_PER_COMPONENT: u32 = 32;

/// What a [`Runtime`] is made with.
#[derive(Debug, Clone)]
pub struct RuntimeConfig {
    /// Where compiled code is kept. Made if missing; must not be writable by other users, since what lies there
    /// is run as machine code.
    pub cache_dir: PathBuf,
    /// Instances alive at a time, 1 to 1,000,000. Each costs address space and, if alive, memory.
    pub resident_max: usize,
    /// Linear memory of one instance, in bytes; at most 4 GiB. Growth beyond it fails in the guest.
    pub memory_bytes_max: usize,
    /// Read the debug information that components bring, so that traps show files and lines.
    pub line_numbers: bool,
}

/// Why the runtime cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// A setting that cannot work.
    #[error("{0}")]
    Setting(String),
    /// The folder for compiled code.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// wasmtime refused, for instance because the address space is limited (`ulimit -v`).
    #[error("the WebAssembly runtime cannot be set up for {resident_max} actors: {reason}")]
    Engine {
        /// As asked for.
        resident_max: usize,
        /// wasmtime's own words.
        reason: String,
    },
}

pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) memory_bytes_max: usize,
    pub(crate) actors: Linker<ActorState>,
    pub(crate) stateless: Linker<ActorState>,
    pub(crate) cache: CodeCache,
    pub(crate) giving_back: GivingBack,
}

/// The engine, shared by all shards.
#[derive(Clone)]
pub struct Runtime(pub(crate) Arc<Shared>);

impl Runtime {
    /// Sets the engine up. Reserves address space, not memory.
    ///
    /// # Errors
    /// [`RuntimeError`].
    pub fn new(config: &RuntimeConfig) -> Result<Self, RuntimeError> {
        check(config)?;
        let failed = |error: wasmtime::Error| RuntimeError::Engine {
            resident_max: config.resident_max,
            reason: format!("{error:#}"),
        };
        let engine = Engine::new(&engine_config(config)).map_err(failed)?;
        let shared = Shared {
            memory_bytes_max: config.memory_bytes_max,
            actors: imports::actor_linker(&engine).map_err(failed)?,
            stateless: imports::wasi_linker(&engine).map_err(failed)?,
            cache: CodeCache::open(&config.cache_dir, &engine)?,
            giving_back: GivingBack::new(&engine).map_err(failed)?,
            engine,
        };
        Ok(Self(Arc::new(shared)))
    }

    /// Whether there is code of this component, so that loading it takes no time.
    #[must_use]
    pub fn is_compiled(&self, wasm: &[u8]) -> bool {
        self.0.cache.has(&load::digest(wasm))
    }

    /// Checks, compiles (or finds compiled) and links the component of an actor class. Blocks, for seconds if a
    /// large component has to be compiled: not to be called on a shard.
    ///
    /// # Errors
    /// [`LoadError`]: one sentence on what is wrong with the component.
    pub fn load_actor(&self, wasm: &[u8]) -> Result<Version, LoadError> {
        load::load(&self.0, &self.0.actors, load::Kind::Actor, wasm)
    }

    /// As [`Runtime::load_actor`] for the stateless component, which has only WASI to import.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn load_stateless(&self, wasm: &[u8]) -> Result<Version, LoadError> {
        load::load(&self.0, &self.0.stateless, load::Kind::Stateless, wasm)
    }

    /// Makes every guest that is running, on any thread, yield to its executor soon. Cheap (one atomic add) and
    /// safe to call from a signal handler or any thread.
    pub fn advance_epoch(&self) {
        self.0.engine.increment_epoch();
    }
}

fn check(config: &RuntimeConfig) -> Result<(), RuntimeError> {
    let refuse = |text: String| Err(RuntimeError::Setting(text));
    if !(1..=1_000_000).contains(&config.resident_max) {
        return refuse(format!("{} resident actors cannot be; 1 to 1,000,000 can", config.resident_max));
    }
    if !(64 << 10..=4 << 30).contains(&config.memory_bytes_max) {
        return refuse(format!(
            "{} bytes of memory per actor cannot be; 64 KiB to 4 GiB can",
            config.memory_bytes_max
        ));
    }
    Ok(())
}

/// Address space of one memory slot, in bytes: 4 GiB as long as all slots fit, else just the limit, with the
/// bounds checks that then come with it.
fn reservation(slots: u64, memory_bytes_max: usize) -> u64 {
    if slots.saturating_mul(UNCHECKED_RESERVATION) <= POOL_ADDRESS_BYTES {
        UNCHECKED_RESERVATION
    } else {
        (memory_bytes_max as u64).next_multiple_of(64 << 10)
    }
}

fn engine_config(config: &RuntimeConfig) -> Config {
    // `check` bounds it; a hundredth more, because an instance that is being dropped still holds its slot.
    let residents = u32::try_from(config.resident_max).unwrap_or(u32::MAX);
    let instances = residents.saturating_add(residents / 100 + 8);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(instances)
        .total_core_instances(instances.saturating_mul(CORE_INSTANCES_PER_COMPONENT))
        .total_memories(instances)
        .total_tables(instances.saturating_mul(2))
        .total_stacks(instances)
        .max_core_instances_per_component(CORE_INSTANCES_PER_COMPONENT)
        .max_memories_per_component(MEMORIES_PER_COMPONENT)
        .max_tables_per_component(TABLES_PER_COMPONENT)
        .max_memories_per_module(MEMORIES_PER_COMPONENT)
        .max_tables_per_module(TABLES_PER_COMPONENT)
        .table_elements(TABLE_ELEMENTS_MAX)
        .max_memory_size(config.memory_bytes_max)
        // A hibernated actor's memory goes back to the system.
        .decommit_batch_size(giving_back::PIECES)
        .linear_memory_keep_resident(0)
        .table_keep_resident(0)
        .async_stack_keep_resident(0);
    let mut engine = Config::new();
    engine
        .wasm_component_model(true)
        .concurrency_support(false)
        .epoch_interruption(true)
        .cranelift_opt_level(OptLevel::Speed)
        .parallel_compilation(true)
        .wasm_backtrace_details(backtrace_details(config))
        .max_wasm_stack(WASM_STACK_BYTES)
        .async_stack_size(CALL_STACK_BYTES)
        .async_stack_zeroing(true)
        .memory_reservation(reservation(u64::from(instances), config.memory_bytes_max))
        .allocation_strategy(pool);
    engine
}

/// Said either way: the environment of the process must not change what is logged.
fn backtrace_details(config: &RuntimeConfig) -> WasmBacktraceDetails {
    if config.line_numbers { WasmBacktraceDetails::Enable } else { WasmBacktraceDetails::Disable }
}

#[cfg(test)]
mod tests;
