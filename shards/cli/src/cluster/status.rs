//! `wasmkeep cluster status`: who is live, who is not, and what an operator should do something about (R-OPS-1).

mod report;
mod warnings;

use wasmkeep_protocol::lease::Timing;

use super::heartbeats;
use crate::{
    args::ClusterStatus,
    bucket,
    exit::{Failure, Status},
    say,
};
use report::Report;

/// Answers what the heartbeats say.
///
/// # Errors
/// The bucket does not answer, or no node is live; in that case the answer is given first.
pub fn status(flags: &ClusterStatus) -> Result<(), Failure> {
    let timing = Timing::default();
    let heartbeats = bucket::on(&flags.bucket, async |bucket| heartbeats::read_all(bucket).await)?;
    let report = Report::new(flags.bucket.url.to_string(), &heartbeats, &timing);
    if flags.json {
        say::answer_json(&report)?
    } else {
        say::answer(&report.text())?
    }
    if report.has_live_node() {
        return Ok(());
    }
    let sentence = format!(
        "no node is live in {}: start one, or check the prefix in --bucket and this machine's clock",
        flags.bucket.url
    );
    Err(Failure::new(Status::NoLiveNode, sentence))
}
