//! The interfaces of WASI that neither Rust's standard library nor the SDK reaches here.

#![allow(clippy::all)]

wit_bindgen::generate!({
    path: "../../wit",
    inline: "
        package sample:sql;
        world system {
            import wasi:random/random@0.2.12;
            import wasi:sockets/instance-network@0.2.12;
            import wasi:sockets/tcp-create-socket@0.2.12;
            import wasi:sockets/udp-create-socket@0.2.12;
            import wasi:sockets/ip-name-lookup@0.2.12;
        }
    ",
    world: "sample:sql/system",
    with: {
        "wasi:io/poll@0.2.12": wasmkeep_sdk::bindings::http::wasi::io::poll,
        "wasi:io/error@0.2.12": wasmkeep_sdk::bindings::http::wasi::io::error,
        "wasi:io/streams@0.2.12": wasmkeep_sdk::bindings::http::wasi::io::streams,
        "wasi:clocks/monotonic-clock@0.2.12": wasmkeep_sdk::bindings::http::wasi::clocks::monotonic_clock,
    },
    generate_all,
});
