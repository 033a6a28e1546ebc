//! wasmkeep-node
