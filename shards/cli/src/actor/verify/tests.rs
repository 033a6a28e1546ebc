use super::*;
use crate::actor::collecting::{Collecting, run};

// case R3
#[test]
fn files_collected_while_they_are_read_are_no_damage() {
    let flags = Verify {
        actor: "acme/room/lobby".parse().unwrap(),
        bucket: crate::args::Bucket { url: "file:///unused".parse().unwrap() },
        json: false,
        quiet: true,
    };
    for (collections, is_sound) in [(0, true), (2, true), (3, false)] {
        let (history, checks) = run(async {
            let bucket = Collecting::new(&flags.actor, collections).await;
            checked(&bucket, &flags).await.unwrap()
        });
        let report = Report::new(&flags, &history, checks);
        assert_eq!((report.is_sound, report.problems.len()), (is_sound, 0), "{report:?}");
        assert_eq!(report.collected.len(), usize::from(!is_sound));
        let status = report.verdict(&flags, &history).map_err(|failure| failure.status);
        assert_eq!(status, if is_sound { Ok(()) } else { Err(Status::NotFound) });
    }
}
