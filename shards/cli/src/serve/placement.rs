//! Where the shards of the node sit: what the flags ask for, and what suits the machine.

use std::time::Duration;

use wasmkeep_node::runtime::{CpuSet, Placement};

use crate::{
    args,
    exit::{Failure, Status},
};

/// What the flags ask for, and else what suits this machine.
pub(super) fn from_flags(flags: args::Placement) -> Result<Placement, Failure> {
    let allowed = CpuSet::allowed()
        .map_err(|error| Failure::new(Status::Cores, format!("the cores cannot be counted: {error}")))?;
    let placement = on_machine_of(allowed.len(), flags)?;
    let cpus = placement.cpuset.as_ref().unwrap_or(&allowed).len();
    if let Some(warning) = warning(&placement, cpus) {
        tracing::warn!("{warning}");
    }
    Ok(placement)
}

/// What is wrong with a placement that works all the same, on so many `cpus`.
fn warning(placement: &Placement, cpus: usize) -> Option<String> {
    let shards = placement.shards;
    let suits = Placement::for_cpus(cpus).shards;
    (shards > cpus).then(|| {
        format!(
            "{shards} shards take turns on {cpus} cores, which makes every one of them slower; without --shards there \
             would be {suits}"
        )
    })
}

fn on_machine_of(cpus: usize, flags: args::Placement) -> Result<Placement, Failure> {
    let cpuset = match flags.cpuset {
        None => None,
        Some(text) => Some(text.parse::<CpuSet>().map_err(|error| Failure::new(Status::Usage, error))?),
    };
    let shards = flags.shards.or(cpuset.as_ref().map(CpuSet::len));
    let suits = shards.map_or_else(|| Placement::for_cpus(cpus), |shards| Placement::of(shards, cpus));
    Ok(Placement {
        pin: !flags.overprovisioned && (suits.pin || cpuset.is_some()),
        cpuset,
        spin_before_park: Duration::from_micros(flags.spin_before_park_us),
        ring_depth: flags.ring_depth,
        io_memory: flags.io_memory_kib << 10,
        ..suits
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct PlacementFlags {
        #[command(flatten)]
        placement: args::Placement,
    }

    #[test]
    fn more_shards_than_cores_are_warned_about() {
        for (shards, cpus, warned) in [(99, 2, true), (3, 2, true), (2, 2, false), (1, 64, false)] {
            let told = warning(&Placement::of(shards, cpus), cpus);
            assert_eq!(told.is_some(), warned, "{shards} {cpus}");
            assert!(told.is_none_or(|told| told.contains(&format!("{shards} shards"))));
        }
    }

    // R-FLAG-7
    #[test]
    fn without_flags_a_core_is_left_to_the_bucket_and_shards_are_pinned_as_long_as_one_is() {
        for (cpus, flags, shards, pinned) in [
            (1, "", 1, false),
            (2, "", 1, true),
            (4, "", 3, true),
            (64, "", 63, true),
            (64, "--overprovisioned", 63, false),
            (2, "--shards=2", 2, false),
            (64, "--shards=8", 8, true),
            (64, "--shards=64", 64, false),
            (2, "--cpuset=0-1", 2, true),
            (2, "--shards=1 --cpuset=1", 1, true),
            (64, "--cpuset=8-15", 8, true),
            (64, "--cpuset=8-15 --overprovisioned", 8, false),
        ] {
            let words = std::iter::once("serve").chain(flags.split_whitespace());
            let flags = PlacementFlags::try_parse_from(words).unwrap().placement;
            let placement = on_machine_of(cpus, flags).unwrap();
            assert_eq!((placement.shards, placement.pin), (shards, pinned), "{cpus} {placement:?}");
        }
    }
}
