//! Runs WebAssembly components as actors: loading and compiled-code cache, the imports of the guest contract,
//! WASI, limits, and one event after another: a request to the end of its response, or a hook.
//!
//! It does not know threads, sockets or the network: whoever owns an [`Instance`] polls its futures on one
//! thread and calls [`Runtime::advance_epoch`] now and then. It does not decide when an actor lives, which
//! event comes next or how long one may take; `wasmkeep-actor` does. It opens no database; `wasmkeep-storage`
//! does.

mod ahead;
mod bindings;
mod boundary;
mod cache;
mod calls;
mod event;
mod giving_back;
mod headers;
mod hooks;
mod imports;
mod instance;
mod load;
mod log;
mod moment;
pub mod outbound;
mod runtime;
mod sockets;
mod stack;
mod state;
mod timers;
mod turn;

pub use ahead::{AheadError, SpareInstance};
pub use bindings::websockets::{Acceptance, Connection, Message};
pub use boundary::bugs_caught;
pub use calls::{Call, CallError, CallOutcome, Calls};
pub use event::{
    ActorEvent, AlarmEvent, AnswerReceiver, AnswerSender, Cut, HeldAnswer, HttpAnswer, HttpEvent,
    Intercepted, Mistake, OpenAnswer, RequestBody, RequestBodyError, ResponseBody, SocketClose,
    SocketMessage, SocketOpen, Ticket, Unanswered,
};
pub use headers::{for_hook as headers_for_hook, strip as strip_headers};
pub use instance::{Instance, InstantiateError, instance_memory_bytes};
pub use load::{Hooks, LoadError, Version};
pub use runtime::{CacheError, Runtime, RuntimeConfig, RuntimeError};
pub use sockets::{SocketGone, Sockets};
pub use state::{Identity, Setting};
pub use timers::Timers;

#[cfg(test)]
mod tests;
