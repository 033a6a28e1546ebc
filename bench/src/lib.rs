//! wasmkeep-bench
