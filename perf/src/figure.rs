//! One line of a result.

use crate::println;

/// Something measured beside what it should be.
#[derive(Debug)]
pub struct Figure {
    /// What was measured.
    pub name: &'static str,
    /// What it came to.
    pub measured: String,
    /// What is allowed.
    pub target: &'static str,
    /// Whether it is within that.
    pub is_reached: bool,
}

/// Prints them; whether all are reached.
#[must_use]
pub fn print(figures: &[Figure]) -> bool {
    for Figure { name, measured, target, is_reached } in figures {
        println!("{name}: {measured}; {target}: {}", if *is_reached { "yes" } else { "NO" });
    }
    figures.iter().all(|figure| figure.is_reached)
}
