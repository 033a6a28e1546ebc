//! The guide shows code that exists.

use std::{fs, path::Path};

/// The files linked to before each Rust block of `page`, with the block.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut file = String::new();
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some((_, path)) = line.split_once("(../../engine/examples/") {
            file = path.split(')').next().unwrap_or_default().to_owned();
        }
        if line == "```rust" {
            let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((file.clone(), block.join("\n")));
        }
    }
    blocks
}

#[test]
fn rust_in_the_guide_is_the_samples_own() {
    let engine = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let pages = fs::read_dir(engine.join("../docs/guide")).expect("the guide is there");
    let pages = pages.map(|page| fs::read_to_string(page.expect("listed").path()).expect("a page"));
    let blocks: Vec<_> = pages.flat_map(|page| blocks(&page)).collect();
    assert!(!blocks.is_empty());
    for (file, block) in blocks {
        let source = fs::read_to_string(engine.join("examples").join(&file))
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(source.contains(&block), "{file} does not contain this:\n{block}");
    }
}
