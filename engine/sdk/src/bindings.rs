//! The contract as `wit-bindgen` generates it from `engine/wit`, for what the rest of the SDK does not cover.
//!
//! One module for the imports, one for the HTTP handler and one for each hook, so that a component exports
//! the hooks it asks for and no other. [`actor!`](crate::actor) does that; a component that must see the raw
//! handler implements [`http::exports::wasi::http::incoming_handler::Guest`] and calls
//! `bindings::http::export_request_handler!` itself.
//!
//! What is generated describes its world's imports to the linker whether they are used or not. That is why the
//! hooks of WebSockets, whose worlds import types, are behind a feature.

#![allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]

/// `wasi:http/incoming-handler` and the WASI interfaces it stands on.
pub mod http {
    wit_bindgen::generate!({
        path: "../wit",
        world: "request-handler",
        generate_all,
        pub_export_macro: true,
        export_macro_name: "export_request_handler",
        default_bindings_module: "wasmkeep_sdk::bindings::http",
        runtime_path: "::wasmkeep_sdk::__wit_bindgen::rt",
    });
}

/// `wasi:http/outgoing-handler`.
pub mod outgoing {
    wit_bindgen::generate!({
        path: "../wit",
        inline: "
            package wasmkeep:sdk-outgoing;
            world outgoing {
                import wasi:http/outgoing-handler@0.2.12;
            }
        ",
        world: "wasmkeep:sdk-outgoing/outgoing",
        with: {
            "wasi:io/poll@0.2.12": super::http::wasi::io::poll,
            "wasi:io/error@0.2.12": super::http::wasi::io::error,
            "wasi:io/streams@0.2.12": super::http::wasi::io::streams,
            "wasi:clocks/monotonic-clock@0.2.12": super::http::wasi::clocks::monotonic_clock,
            "wasi:http/types@0.2.12": super::http::wasi::http::types,
        },
        generate_all,
    });
}

/// The interfaces of `wasmkeep:actor`.
pub mod platform {
    wit_bindgen::generate!({
        path: "../wit",
        inline: "
            package wasmkeep:sdk;
            world platform {
                import wasmkeep:actor/storage@0.2.0;
                import wasmkeep:actor/alarms@0.2.0;
                import wasmkeep:actor/actors@0.2.0;
                import wasmkeep:actor/websockets@0.2.0;
                import wasmkeep:actor/context@0.2.0;
                import wasmkeep:actor/replies@0.2.0;
            }
        ",
        world: "wasmkeep:sdk/platform",
        with: {
            "wasi:io/poll@0.2.12": super::http::wasi::io::poll,
            "wasi:io/error@0.2.12": super::http::wasi::io::error,
            "wasi:io/streams@0.2.12": super::http::wasi::io::streams,
            "wasi:clocks/monotonic-clock@0.2.12": super::http::wasi::clocks::monotonic_clock,
            "wasi:http/types@0.2.12": super::http::wasi::http::types,
        },
        generate_all,
    });
}

/// The `on-init` hook.
pub mod init {
    wit_bindgen::generate!({
        path: "../wit",
        world: "hook-init",
        pub_export_macro: true,
        export_macro_name: "export_init",
        default_bindings_module: "wasmkeep_sdk::bindings::init",
        runtime_path: "::wasmkeep_sdk::__wit_bindgen::rt",
    });
}

/// The `on-alarm` hook.
pub mod alarm {
    wit_bindgen::generate!({
        path: "../wit",
        world: "hook-alarm",
        pub_export_macro: true,
        export_macro_name: "export_alarm",
        default_bindings_module: "wasmkeep_sdk::bindings::alarm",
        runtime_path: "::wasmkeep_sdk::__wit_bindgen::rt",
    });
}

/// The `on-websocket-open` hook.
#[cfg(feature = "websockets")]
pub mod websocket_open {
    wit_bindgen::generate!({
        path: "../wit",
        world: "hook-websocket-open",
        with: { "wasmkeep:actor/websockets@0.2.0": super::platform::wasmkeep::actor::websockets },
        pub_export_macro: true,
        export_macro_name: "export_websocket_open",
        default_bindings_module: "wasmkeep_sdk::bindings::websocket_open",
        runtime_path: "::wasmkeep_sdk::__wit_bindgen::rt",
    });
}

/// The `on-websocket-message` hook.
#[cfg(feature = "websockets")]
pub mod websocket_message {
    wit_bindgen::generate!({
        path: "../wit",
        world: "hook-websocket-message",
        with: { "wasmkeep:actor/websockets@0.2.0": super::platform::wasmkeep::actor::websockets },
        pub_export_macro: true,
        export_macro_name: "export_websocket_message",
        default_bindings_module: "wasmkeep_sdk::bindings::websocket_message",
        runtime_path: "::wasmkeep_sdk::__wit_bindgen::rt",
    });
}

/// The `on-websocket-close` hook.
#[cfg(feature = "websockets")]
pub mod websocket_close {
    wit_bindgen::generate!({
        path: "../wit",
        world: "hook-websocket-close",
        pub_export_macro: true,
        export_macro_name: "export_websocket_close",
        default_bindings_module: "wasmkeep_sdk::bindings::websocket_close",
        runtime_path: "::wasmkeep_sdk::__wit_bindgen::rt",
    });
}
