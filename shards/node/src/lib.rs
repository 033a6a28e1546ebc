//! A node: what runs actors on cores and answers the outside.

pub mod http;
pub mod runtime;
