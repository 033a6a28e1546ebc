//! Whether the actor is still this node's.

/// Whether this node holds the actor. Asked when something would be acknowledged or deleted: what was uploaded
/// after the lease ran out may be what the next owner has already left behind.
pub trait Hold {
    /// Whether the node's lease is valid and the actor is its own.
    fn is_held(&self) -> bool;
}

impl<F: Fn() -> bool> Hold for F {
    fn is_held(&self) -> bool {
        self()
    }
}
