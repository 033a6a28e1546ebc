//! wasmkeep-sim
