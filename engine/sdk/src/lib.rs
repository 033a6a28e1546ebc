//! Write WasmKeep actors in Rust.
//!
//! ```no_run
//! use wasmkeep_sdk::{Handle, Request, Response, Result, actor, params, storage};
//!
//! struct Greeter;
//!
//! impl Handle for Greeter {
//!     fn handle(request: Request) -> Result<Response> {
//!         storage::exec("CREATE TABLE IF NOT EXISTS seen (path TEXT)", params![])?;
//!         storage::exec("INSERT INTO seen VALUES (?)", params![request.path()])?;
//!         let visits: i64 = storage::query_one("SELECT count(*) FROM seen", params![])?;
//!         Ok(Response::text(format!("hello, visit {visits}\n")))
//!     }
//! }
//!
//! actor!(Greeter);
//! ```
//!
//! This crate turns the guest contract (`engine/wit`) into plain Rust: requests, responses, typed SQL and one
//! trait a hook. It decides nothing itself: what the platform promises is written in the contract, and its
//! documentation is repeated at the functions of [`bindings`].
//!
//! What an actor prints with `println!` and `eprintln!` goes to the node's log under the actor's name.
//! What must last goes into [`storage`]; a `thread_local!` or a `static` lives as long as the instance.

// The macros that the bindings generate name this crate by its name.
extern crate self as wasmkeep_sdk;

pub mod alarm;
pub mod bindings;
mod call;
mod error;
mod form;
mod hooks;
pub mod outbound;
mod request;
mod response;
pub mod storage;

pub use bindings::platform::wasmkeep::actor::{actors, alarms, context, websockets};
pub use call::{CallError, CallRequest, CallResponse, call};
pub use error::{Error, Result};
pub use form::query_value;
#[cfg(feature = "websockets")]
pub use hooks::websocket::{WebSocketClose, WebSocketMessage, WebSocketOpen};
pub use hooks::{Alarm, Exports, Handle, Init, serve};
pub use request::{BodyReader, Request};
pub use response::{BodyWriter, Response};

#[doc(hidden)]
pub use wit_bindgen as __wit_bindgen;

/// Makes a component of a type: its [`Handle`] and the hooks that are named.
///
/// `actor!(Room)` exports the request handler alone. `actor!(Room, init, alarm)` exports those hooks too,
/// and then `Room` must implement [`Init`] and [`Alarm`]. The names are `init`, `alarm` and, with this crate's
/// feature `websockets`, `websocket_open`, `websocket_message` and `websocket_close`. Once in a crate.
#[macro_export]
macro_rules! actor {
    ($actor:ty $(, $hook:ident)* $(,)?) => {
        type __WasmkeepExports = $crate::Exports<$actor>;
        $crate::bindings::http::export_request_handler!(__WasmkeepExports);
        $($crate::__export_hook!($hook);)*
    };
}

/// Makes a stateless component of a type: the one that answers requests which are not for an actor.
///
/// It is [`actor!`] without hooks; a stateless component that calls [`storage`] or [`context`] is refused
/// when the node starts.
#[macro_export]
macro_rules! stateless {
    ($site:ty) => {
        $crate::actor!($site);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __export_hook {
    (init) => {
        $crate::bindings::init::export_init!(__WasmkeepExports);
    };
    (alarm) => {
        $crate::bindings::alarm::export_alarm!(__WasmkeepExports);
    };
    ($websocket:ident) => {
        $crate::__export_websocket_hook!($websocket);
    };
}

#[cfg(feature = "websockets")]
#[doc(hidden)]
#[macro_export]
macro_rules! __export_websocket_hook {
    (websocket_open) => {
        $crate::bindings::websocket_open::export_websocket_open!(__WasmkeepExports);
    };
    (websocket_message) => {
        $crate::bindings::websocket_message::export_websocket_message!(__WasmkeepExports);
    };
    (websocket_close) => {
        $crate::bindings::websocket_close::export_websocket_close!(__WasmkeepExports);
    };
}

#[cfg(not(feature = "websockets"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __export_websocket_hook {
    ($hook:ident) => {
        compile_error!(concat!(
            "the hook `",
            stringify!($hook),
            "` is not `init` or `alarm`; those of WebSockets need the feature `websockets` of wasmkeep-sdk"
        ));
    };
}
