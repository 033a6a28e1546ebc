//! Deleting history that no restore needs.

use std::{cell::Cell, time::Duration};

use wasmkeep_protocol::limits::HISTORY_RETENTION;
use wasmkeep_replica::{CollectError, Need, collect};
use wasmkeep_runtime::Runtime;

use crate::{
    rig::{FOLDER, Held, Model, Rig, driven, run},
    scripted::{Ask, Fault},
};

/// A history of two holds, the second of which made a snapshot and one more write.
async fn two_holds(rig: &Rig, model: &mut Model) {
    rig.history(model, 6).await;
    let uploader = rig.uploader(2, model.point());
    driven(&uploader, async {
        uploader.push(model.commit(4, 1)).unwrap();
        uploader.landed(model.txid, Need::Replicated).await.unwrap();
        assert!(uploader.snapshot(model.point(), model.whole().into()).await);
        uploader.push(model.commit(4, 2)).unwrap();
        uploader.landed(model.txid, Need::Replicated).await.unwrap();
    })
    .await;
}

async fn pass(rig: &Rig, generation: u64, retention: Duration) -> Result<u64, CollectError> {
    collect(&rig.bucket, &rig.clock, FOLDER, generation, retention, &rig.held).await
}

// R-HIST-1
#[test]
fn a_pass_after_a_snapshot_deletes_what_is_old_and_unneeded() {
    run(async {
        let (rig, mut model) = (Rig::new(), Model::new());
        two_holds(&rig, &mut model).await;
        rig.bucket.pages_of(2);
        assert_eq!(pass(&rig, 2, HISTORY_RETENTION).await, Ok(0), "too young");
        assert_eq!(pass(&rig, 1, Duration::ZERO).await, Ok(0), "an earlier owner's late pass");
        assert_eq!(pass(&rig, 3, Duration::ZERO).await, Ok(0), "a later owner without a snapshot");
        rig.clock.sleep(HISTORY_RETENTION).await;
        assert_eq!(pass(&rig, 2, HISTORY_RETENTION).await, Ok(8));
        assert_eq!(rig.bucket.keys().await.len(), 2);
        assert_eq!(pass(&rig, 2, Duration::ZERO).await, Ok(0));
        assert_eq!(rig.restore().await.unwrap().point, model.point());
        assert!(std::fs::read(rig.path()).unwrap() == model.bytes());
    });
}

#[test]
fn a_pass_cut_off_anywhere_leaves_a_history_that_restores() {
    run(async {
        let (rig, mut model) = (Rig::new(), Model::new());
        two_holds(&rig, &mut model).await;
        for round in 0..8 {
            // Held for one delete.
            let looks = Cell::new(0);
            let hold = || {
                looks.set(looks.get() + 1);
                looks.get() <= 1
            };
            let ended = collect(&rig.bucket, &rig.clock, FOLDER, 2, Duration::ZERO, &hold).await;
            assert_eq!(ended, if round == 7 { Ok(1) } else { Err(CollectError::NotHeld(1)) });
            assert_eq!(rig.restore().await.unwrap().point, model.point());
        }
    });
}

#[test]
fn a_delete_that_fails_is_tried_again_and_then_left_to_the_next_pass() {
    run(async {
        let (rig, mut model) = (Rig::new(), Model::new());
        two_holds(&rig, &mut model).await;
        rig.bucket.faults(Ask::Delete, &[Fault::Throttled, Fault::Broken]);
        assert_eq!(pass(&rig, 2, Duration::ZERO).await, Ok(8));
        two_holds(&rig, &mut Model::new()).await;
    });
    run(async {
        let (rig, mut model) = (Rig::new(), Model::new());
        two_holds(&rig, &mut model).await;
        rig.bucket.faults(Ask::Delete, &[Fault::None, Fault::Broken, Fault::Broken, Fault::Broken]);
        let ended = pass(&rig, 2, Duration::ZERO).await.unwrap_err();
        assert_eq!(ended.deleted(), 1, "{ended}");
        assert_eq!(pass(&rig, 2, Duration::ZERO).await, Ok(7));
        rig.bucket.faults(Ask::List, &[Fault::Refused]);
        assert!(matches!(pass(&rig, 2, Duration::ZERO).await, Err(CollectError::History(_))));
        let lost = Held::default();
        let ended = collect(&rig.bucket, &rig.clock, FOLDER, 2, Duration::ZERO, &lost).await;
        assert_eq!(ended, Ok(0), "nothing left to delete");
    });
}
