//! What the HTTP front promises, seen from plain sockets.

mod ends;
mod framing;
mod harness;
mod moving;
mod ordinary;
