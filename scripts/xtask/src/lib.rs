//! wasmkeep-xtask
