//! Host side of what a component may import.

mod actors;
mod alarms;
mod context;
mod replies;
pub(crate) mod storage;
mod websockets;

use wasmtime::component::{HasSelf, Linker};

use crate::{bindings, state::ActorState};

/// WASI, HTTP and whole answers, for any component.
pub(crate) fn wasi_linker(engine: &wasmtime::Engine) -> wasmtime::Result<Linker<ActorState>> {
    let mut linker = Linker::<ActorState>::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    // The environment belongs to the class and is shared by its actors instead of copied into each.
    linker.allow_shadowing(true);
    linker
        .instance("wasi:cli/environment@0.2.12")?
        .func_wrap("get-environment", |store, (): ()| -> wasmtime::Result<(Vec<(String, String)>,)> {
            Ok((store.data().env.to_vec(),))
        })?;
    linker.allow_shadowing(false);
    bindings::replies::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    Ok(linker)
}

/// All of it, for actors.
pub(crate) fn actor_linker(engine: &wasmtime::Engine) -> wasmtime::Result<Linker<ActorState>> {
    let mut linker = wasi_linker(engine)?;
    bindings::storage::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    bindings::alarms::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    bindings::actors::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    bindings::websockets::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    bindings::context::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    Ok(linker)
}

/// What any component may import of the contract.
pub(crate) const COMMON_INTERFACES: [&str; 1] = ["wasmkeep:actor/replies"];

/// Interfaces an actor may import, without versions, in the order in which a message lists them.
pub(crate) const ACTOR_INTERFACES: [&str; 6] = [
    "wasmkeep:actor/storage",
    "wasmkeep:actor/alarms",
    "wasmkeep:actor/actors",
    "wasmkeep:actor/websockets",
    "wasmkeep:actor/context",
    "wasmkeep:actor/replies",
];
