use super::*;

fn set(text: &str) -> CpuSet {
    text.parse().unwrap()
}

#[test]
fn a_cpuset_reads_and_prints_as_people_write_it() {
    for (text, printed, cpus) in [
        ("0", "0", vec![0]),
        ("0-3", "0-3", vec![0, 1, 2, 3]),
        ("8,0-1, 2", "0-2,8", vec![0, 1, 2, 8]),
        ("1,1,3", "1,3", vec![1, 3]),
    ] {
        let read = set(text);
        assert_eq!(read.iter().collect::<Vec<_>>(), cpus, "{text}");
        assert_eq!(read.to_string(), printed);
        assert_eq!(set(printed), read);
    }
    for text in ["", "a", "3-1", "1-", "-1", "1,,2", "99999999"] {
        let error = text.parse::<CpuSet>().unwrap_err().to_string();
        assert!(error.contains("0-3,8"), "{error}");
    }
}

// R-FLAG-7
#[test]
fn defaults_fit_machines_from_one_to_64_cpus() {
    for cpus in 1..=64 {
        let placement = Placement::for_cpus(cpus);
        let allowed = set(&format!("0-{}", cpus - 1));
        placement.check(&allowed).unwrap();
        assert_eq!(placement.shards, (cpus - 1).max(1), "the bucket has a core where there are two");
        assert_eq!(placement.pin, cpus > 1, "where there is one only, all share it");
    }
}

// R-FLAG-5
#[test]
fn a_placement_that_cannot_work_says_what_to_change() {
    let allowed = set("0-1");
    let good = Placement { shards: 2, pin: true, ..Placement::for_cpus(2) };
    good.check(&allowed).unwrap();
    for (placement, says) in [
        (Placement { shards: 0, ..good.clone() }, "1 to 1024"),
        (Placement { shards: 5000, ..good.clone() }, "1 to 1024"),
        (Placement { ring_depth: 0, ..good.clone() }, "1 to 4096"),
        (Placement { cpuset: Some(set("1,7")), ..good.clone() }, "CPU 7"),
        (Placement { shards: 3, ..good.clone() }, "do not pin"),
        (Placement { cpuset: Some(set("1")), ..good.clone() }, "widen the cpuset"),
    ] {
        let error = placement.check(&allowed).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert!(!error.contains('\n'));
    }
    Placement { shards: 8, pin: false, ..good }.check(&allowed).unwrap();
}
