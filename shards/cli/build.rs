//! The SDK and the contract are part of the binary (`src/new.rs`): a file added to them is a change of this crate.

fn main() {
    for folder in ["../../engine/sdk/src", "../../engine/wit"] {
        println!("cargo:rerun-if-changed={folder}");
    }
}
