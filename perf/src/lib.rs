//! wasmkeep-perf
