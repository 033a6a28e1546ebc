//! Rust types and traits of the guest contract's imports. Exports are looked up by name instead, because each
//! hook is optional in a component.

wasmtime::component::bindgen!({
    path: "../wit",
    inline: "
        package wasmkeep:host;
        world imports {
            import wasmkeep:actor/storage@0.2.0;
            import wasmkeep:actor/alarms@0.2.0;
            import wasmkeep:actor/actors@0.2.0;
            import wasmkeep:actor/websockets@0.2.0;
            import wasmkeep:actor/context@0.2.0;
            import wasmkeep:actor/replies@0.2.0;
        }
    ",
    world: "wasmkeep:host/imports",
    imports: {
        "wasmkeep:actor/storage.exec": async | trappable,
        "wasmkeep:actor/storage.exec-durable": async | trappable,
        "wasmkeep:actor/storage.query": async | trappable,
        "wasmkeep:actor/storage.open-cursor": async | trappable,
        "wasmkeep:actor/storage.exec-script": async | trappable,
        "wasmkeep:actor/storage.[method]cursor.next": async | trappable,
        "wasmkeep:actor/actors.call": async | trappable,
        "wasmkeep:actor/alarms.set": async | trappable,
        "wasmkeep:actor/alarms.get": async | trappable,
        "wasmkeep:actor/alarms.clear": async | trappable,
        default: trappable,
    },
    with: {
        "wasmkeep:actor/storage.cursor": crate::imports::storage::OpenCursor,
        "wasi:io": wasmtime_wasi::p2::bindings::io,
        "wasi:clocks": wasmtime_wasi::p2::bindings::clocks,
        "wasi:http/types": wasmtime_wasi_http::p2::bindings::http::types,
    },
    require_store_data_send: true,
    additional_derives: [PartialEq],
});

pub(crate) use wasmkeep::actor::{actors, alarms, context, replies, storage, websockets};
