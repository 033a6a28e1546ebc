use proptest::prelude::*;

use super::*;

#[test]
fn every_size_up_to_the_largest_has_a_class_that_holds_it() {
    let mut last = (0, 0);
    for bytes in 0..=PIECE_BYTES_MAX {
        let found = class(bytes).unwrap();
        assert!(found.1 >= bytes && found.0 < CLASSES && found.1.is_multiple_of(16), "{bytes}: {found:?}");
        assert!(
            found == last || found.0 == last.0 + usize::from(last.1 > 0),
            "{bytes}: {found:?} after {last:?}"
        );
        let step = if bytes <= 1 << 10 {
            32
        } else if bytes <= 8 << 10 {
            256
        } else {
            4 << 10
        };
        assert!(found.1 - bytes <= step, "{bytes}: {found:?}");
        last = found;
    }
    assert_eq!(last.0, CLASSES - 1);
    assert_eq!(class(PIECE_BYTES_MAX + 1), None);
}

#[test]
fn a_full_block_says_so_and_takes_again_what_was_freed() {
    let mut arena = Arena::take().unwrap();
    // SAFETY: used here alone.
    let arena = unsafe { arena.as_mut() };
    let mut pieces = Vec::new();
    loop {
        let piece = arena.allocate(4000);
        if piece.is_null() {
            break;
        }
        pieces.push(piece);
    }
    assert!(pieces.len() > BLOCK_BYTES / 4500, "{}", pieces.len());
    let freed = pieces.swap_remove(3);
    // SAFETY: each piece is freed once, with its size.
    unsafe {
        arena.free(freed, 4000);
        assert_eq!(arena.allocate(4001), freed);
        assert!(arena.allocate(4000).is_null());
        assert!(arena.allocate(PIECE_BYTES_MAX + 1).is_null());
        pieces.push(freed);
        for piece in pieces {
            arena.free(piece, 4000);
        }
        Arena::give_back(NonNull::from(arena));
    }
}

#[test]
fn a_block_with_something_in_use_is_never_given_to_another() {
    let mut first = Arena::take().unwrap();
    // SAFETY: used here alone; what is left in it is not used.
    unsafe {
        first.as_mut().allocate(10);
        Arena::give_back(first);
    }
    let others: Vec<_> = (0..100).map(|_| Arena::take().unwrap()).collect();
    assert!(!others.contains(&first));
    for other in others {
        // SAFETY: as taken.
        unsafe { Arena::give_back(other) };
    }
}

proptest! {
    #[test]
    fn pieces_in_use_never_overlap(steps in prop::collection::vec((any::<bool>(), 0_usize..6000, any::<prop::sample::Index>()), 1..300)) {
        let mut block = Arena::take().unwrap();
        // SAFETY: used here alone; every piece is written within its size and freed once.
        unsafe {
            let mut live: Vec<(*mut u8, usize, u8)> = Vec::new();
            for (number, (frees, bytes, which)) in steps.into_iter().enumerate() {
                if frees && !live.is_empty() {
                    let (piece, bytes, mark) = live.swap_remove(which.index(live.len()));
                    prop_assert!((0..bytes).all(|at| *piece.add(at) == mark));
                    block.as_mut().free(piece, bytes);
                } else {
                    let piece = block.as_mut().allocate(bytes);
                    if piece.is_null() {
                        continue;
                    }
                    prop_assert_eq!(Arena::of(piece), block.as_ptr());
                    piece.write_bytes(number as u8, bytes);
                    live.push((piece, bytes, number as u8));
                }
            }
            for (piece, bytes, mark) in live {
                prop_assert!((0..bytes).all(|at| *piece.add(at) == mark));
                block.as_mut().free(piece, bytes);
            }
            Arena::give_back(block);
        }
    }
}
