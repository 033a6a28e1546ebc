//! wasmkeep-ltx
