use super::*;
use crate::actor::collecting::{Collecting, page, run};

fn flags(output: &Path) -> Export {
    Export {
        actor: "acme/room/lobby".parse().unwrap(),
        bucket: crate::args::Bucket { url: "file:///unused".parse().unwrap() },
        at: None,
        output: Some(output.to_owned()),
        litestream: None,
        mode: crate::args::FileMode(0o600),
        json: false,
        quiet: true,
    }
}

// case R3
#[test]
fn files_collected_between_listing_and_reading_are_looked_for_anew() {
    for (collections, wanted) in [(0, Some(1)), (1, Some(2)), (2, Some(3)), (3, None)] {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.db");
        let flags = flags(&output);
        let ended = run(async {
            let bucket = Collecting::new(&flags.actor, collections).await;
            exported(&bucket, &flags, &output).await
        });
        match (wanted, ended) {
            (Some(txid), Ok(report)) => {
                assert_eq!(report.txid, txid);
                assert_eq!(std::fs::read(&output).unwrap(), page(txid));
            }
            (None, Err(failure)) => {
                assert_eq!(failure.status, Status::NotFound);
                assert!(failure.to_string().contains("run the command again"), "{failure}");
                assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing half is left");
            }
            (wanted, ended) => panic!("{wanted:?}: {ended:?}"),
        }
    }
}
