//! wasmkeep-sdk
