//! Any bytes as an LTX file: an error or pages, never a panic, and what is read in order is what is read by number.
//!
//! A first byte of 0 takes the rest as it is. Otherwise the rest becomes payloads of frames in a file whose index and
//! header are right, so that the decompressors see them.
#![no_main]

#[path = "../../tests/format/forging.rs"]
mod forging;

use libfuzzer_sys::fuzz_target;
use wasmkeep_ltx::File;

use forging::{Frame, forge};

/// Pages of 512 bytes, the size given here.
const PAGE: usize = 512;

/// A snapshot's header: magic, flags, page size, pages, transactions 1 to 1, nothing else.
fn header(pages: u8) -> Vec<u8> {
    let mut header = vec![0; 100];
    header[..4].copy_from_slice(b"LTX1");
    header[8..12].copy_from_slice(&(PAGE as u32).to_be_bytes());
    header[15] = pages;
    header[23] = 1;
    header[31] = 1;
    header
}

fn forged(bytes: &[u8], kind: u8) -> Vec<u8> {
    let payloads: Vec<&[u8]> = bytes.split(|byte| *byte == kind).take(8).collect();
    let frames: Vec<Frame> = payloads
        .iter()
        .zip(1u32..)
        .map(|(payload, pgno)| match kind % 2 {
            0 => Frame::of_block(pgno, payload, vec![0; PAGE]),
            _ => Frame::of_lz4_frame(pgno, payload, vec![0; PAGE]),
        })
        .collect();
    forge(&header(frames.len() as u8), &frames, 1 << 63)
}

fuzz_target!(|bytes: &[u8]| {
    match bytes.split_first() {
        None => {}
        Some((0, rest)) => check(rest),
        Some((kind, rest)) => check(&forged(rest, *kind)),
    }
});

fn check(bytes: &[u8]) {
    let Ok(file) = File::parse(bytes) else { return };
    let mut page = vec![0; file.header().page_size.bytes()];
    let numbers: Vec<u32> = file.index().iter().map(|entry| entry.pgno).collect();
    let mut by_number = Vec::new();
    for number in &numbers {
        by_number.push(file.read_page(*number, &mut page).map(|there| there.then(|| page.clone())));
    }
    let Ok(verified) = file.verify() else { return };
    let mut pages = verified.pages();
    let mut place = 0;
    while let Some((number, content)) = pages.next_page() {
        assert_eq!(numbers[place], number);
        assert!(matches!(&by_number[place], Ok(Some(page)) if page == content), "page {number}");
        place += 1;
    }
    assert_eq!(place, numbers.len());
}
