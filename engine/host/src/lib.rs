//! wasmkeep-host
