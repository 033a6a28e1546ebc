//! Many restores at once: one budget, in turn, and none ended because of the others.

use std::{cell::Cell, rc::Rc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream::FuturesUnordered};
use wasmkeep_bucket::{Bucket, Precondition};
use wasmkeep_protocol::{
    history::HistoryFile,
    limits::{MIB, RESTORE_BYTES_MAX, RESTORE_READS_MAX},
};
use wasmkeep_runtime::Runtime;

use crate::{
    rig::{Model, Rig, run},
    scripted::{Ask, Fault},
};

/// Puts the same snapshot under the folders of `actors` actors.
async fn many(rig: &Rig, pages: usize, actors: usize) -> (Model, Vec<String>) {
    let mut model = Model::new();
    model.first(pages);
    let body = Bytes::from(model.whole());
    let mut folders = Vec::new();
    for actor in 0..actors {
        let folder = format!("actors/acme/room/a{actor}/wal/");
        let key = format!("{folder}{}", HistoryFile::snapshot(1, model.point())).parse().unwrap();
        let _ = rig.bucket.memory.put(&key, body.clone(), &Precondition::None).await;
        folders.push(folder);
    }
    (model, folders)
}

// R-BKT-3, R-RST-3
#[test]
fn restores_share_the_budget_and_none_is_ended_by_what_others_read() {
    run(async {
        let rig = Rig::new();
        // 2 MiB each, 100 actors: up to 32 reads at once.
        let (model, folders) = many(&rig, 512, 100).await;
        let budget = rig.budget.clone();
        let peak = Rc::new(Cell::new((0, 0)));
        let seen = Rc::clone(&peak);
        // One link of about a megabyte a second, shared by whatever is read.
        rig.bucket.script(move |ask, _| {
            let (reads, bytes) = budget.in_flight();
            seen.set((seen.get().0.max(reads), seen.get().1.max(bytes)));
            let pieces = 20;
            let time = Duration::from_secs_f64(bytes as f64 / MIB as f64);
            if ask == Ask::Get { Fault::Slow(pieces, time / pieces as u32) } else { Fault::None }
        });
        let restorer = rig.restorer();
        let mut restores: FuturesUnordered<_> = folders
            .iter()
            .enumerate()
            .map(|(actor, folder)| {
                let path = rig.folder.path().join(format!("{actor}.db"));
                let restorer = &restorer;
                async move { restorer.rebuild(folder, &path, None).await }
            })
            .collect();
        while let Some(restored) = restores.next().await {
            assert_eq!(restored.unwrap().point, model.point());
        }
        let (reads, bytes) = peak.get();
        assert_eq!(reads, RESTORE_READS_MAX);
        assert!(bytes <= RESTORE_BYTES_MAX);
        assert!(rig.clock.now() > Duration::from_secs(120), "the whole takes longer than one restore may");
        assert_eq!(rig.budget.in_flight(), (0, 0));
    });
}

#[test]
fn a_restore_that_is_dropped_gives_its_places_back() {
    run(async {
        let rig = Rig::new();
        let (model, folders) = many(&rig, 4, 40).await;
        rig.bucket.script(|ask, _| if ask == Ask::Get { Fault::Hang } else { Fault::None });
        let restorer = rig.restorer();
        let path = rig.folder.path().join("x.db");
        {
            let mut restores: FuturesUnordered<_> =
                folders.iter().map(|folder| restorer.rebuild(folder, &path, None)).map(Box::pin).collect();
            let first = std::pin::pin!(restores.next());
            let later = std::pin::pin!(rig.clock.sleep(Duration::from_secs(1)));
            futures::future::select(first, later).await;
            assert_eq!(rig.budget.in_flight().0, RESTORE_READS_MAX);
        }
        assert_eq!(rig.budget.in_flight(), (0, 0));
        rig.bucket.script(|_, _| Fault::None);
        let restored = restorer.rebuild(&folders[0], &path, None).await.unwrap();
        assert_eq!(restored.point, model.point());
    });
}
