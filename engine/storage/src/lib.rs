//! wasmkeep-storage
