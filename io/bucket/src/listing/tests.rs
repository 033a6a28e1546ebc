//! Pages a store may give, good and bad.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use crate::block_on;
use bytes::Bytes;

use super::*;
use crate::{Failure, MemoryBucket, Meta, Object, Outcome, Precondition};

/// A bucket that answers listings with prepared pages, the last one again and again.
struct Scripted {
    pages: RefCell<VecDeque<Page>>,
    asked: Cell<usize>,
}

impl Bucket for Scripted {
    async fn get(&self, _: &Key, _: Option<Range<u64>>) -> Result<Object, ReadError> {
        Err(ReadError::NotFound)
    }

    async fn head(&self, _: &Key) -> Result<Meta, ReadError> {
        Err(ReadError::NotFound)
    }

    async fn put(&self, _: &Key, _: Bytes, _: &Precondition) -> Outcome {
        Outcome::ConditionFailed
    }

    async fn delete(&self, _: &Key) -> Result<(), Failure> {
        Ok(())
    }

    async fn list(&self, _: &ListQuery) -> Result<Page, ReadError> {
        self.asked.set(self.asked.get() + 1);
        let mut pages = self.pages.borrow_mut();
        if pages.len() > 1 { Ok(pages.pop_front().unwrap()) } else { Ok(pages[0].clone()) }
    }
}

fn page(names: &[&str], truncated: bool, token: Option<&str>) -> Page {
    let objects = names
        .iter()
        .map(|name| PageObject { name: (*name).to_owned(), size: 1, modified_ms: 0, version: None })
        .collect();
    Page { objects, truncated, token: token.map(str::to_owned) }
}

fn list(pages: &[Page]) -> (Result<Vec<String>, ListError>, usize) {
    let bucket = Scripted { pages: RefCell::new(pages.to_vec().into()), asked: Cell::new(0) };
    let listed = block_on(Listing::new(&bucket, "h/").all(10_000));
    let names = listed.map(|entries| entries.iter().map(|entry| entry.key.to_string()).collect());
    (names, bucket.asked.get())
}

// case S4
#[test]
fn each_page_that_could_hide_keys_ends_the_listing_with_an_error() {
    let cases = [
        (vec![page(&["h/a"], true, None)], ListingFault::TruncatedWithoutToken, 1),
        (vec![page(&["h/a"], false, Some("t"))], ListingFault::TokenWithoutTruncation, 1),
        (
            vec![page(&["h/a"], true, Some("t")), page(&["h/b"], true, Some("t"))],
            ListingFault::RepeatedToken,
            2,
        ),
        (vec![page(&[], true, Some("t"))], ListingFault::EmptyPage, 1),
        (vec![page(&["h/b", "h/a"], false, None)], ListingFault::Unordered("h/b".into(), "h/a".into()), 1),
        (
            vec![page(&["h/a", "h/b"], true, Some("t")), page(&["h/b", "h/c"], false, None)],
            ListingFault::Unordered("h/b".into(), "h/b".into()),
            2,
        ),
        (vec![page(&["i/a"], false, None)], ListingFault::Unasked("i/a".into()), 1),
    ];
    for (pages, fault, asked) in cases {
        assert_eq!(list(&pages), (Err(ListError::Fault(fault)), asked), "{pages:?}");
    }
}

// case S4
#[test]
fn tokens_that_lead_in_a_circle_end_in_bounded_time() {
    let circle = [
        page(&["h/a"], true, Some("t1")),
        page(&["h/b"], true, Some("t2")),
        page(&["h/a"], true, Some("t1")),
    ];
    let (listed, asked) = list(&circle);
    assert_eq!(listed, Err(ListingFault::Unordered("h/b".into(), "h/a".into()).into()));
    assert_eq!(asked, 3);
}

#[test]
fn names_that_are_not_ours_are_left_out_and_counted() {
    let bucket = Scripted {
        pages: RefCell::new([page(&["h/", "h/a", "h/b//c", "h/d e"], false, None)].into()),
        asked: Cell::new(0),
    };
    let mut listing = Listing::new(&bucket, "h/");
    let entries = block_on(listing.next_page()).unwrap().unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].key.as_str(), "h/a");
    assert_eq!(listing.skipped(), 3);
    assert_eq!(block_on(listing.next_page()), Ok(None));
}

// case S4: page sizes 1, 2 and 1000 over 2,500 keys
#[test]
fn every_page_size_gives_the_same_complete_listing() {
    block_on(async {
        let bucket = MemoryBucket::new();
        let keys: Vec<Key> = (0..2500).map(|n| format!("h/{n:06}").parse().unwrap()).collect();
        for key in &keys {
            let put = bucket.put(key, Bytes::from_static(b"x"), &Precondition::Absent).await;
            assert!(matches!(put, Outcome::Written(_)));
        }
        for page_max in [1, 2, 1000] {
            let listed = Listing::new(&bucket, "h/").page_max(page_max).all(2500).await.unwrap();
            assert!(listed.iter().map(|entry| &entry.key).eq(&keys), "page of {page_max}");
        }
        let late =
            Listing::new(&bucket, "h/").start_after(keys[2400].clone()).page_max(7).all(99).await.unwrap();
        assert!(late.iter().map(|entry| &entry.key).eq(&keys[2401..]));
        let refused = Listing::new(&bucket, "h/").all(2499).await;
        assert_eq!(refused, Err(ListingFault::TooMany(2499).into()));
    });
}
