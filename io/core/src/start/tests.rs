use std::cell::Cell;

use tokio::time::Instant;

use super::*;
use crate::kit::Slow;

// R-BKT-1
#[tokio::test(start_paused = true)]
async fn a_bucket_that_does_not_answer_is_asked_again_until_it_does() {
    let bucket = Slow::new(Duration::from_millis(10));
    *bucket.silent.borrow_mut() = 4;
    let told = Cell::new(0);
    let began = Instant::now();
    let proof = prove(&bucket, |why| {
        assert!(why.contains("silence"), "{why}");
        told.set(told.get() + 1);
    });
    assert!(proof.await.is_ok());
    assert!(
        told.get() >= 1 && began.elapsed() >= AGAIN_AFTER * told.get(),
        "{} {:?}",
        told.get(),
        began.elapsed()
    );
}
