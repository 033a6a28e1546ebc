//! wasmkeep-bucket
