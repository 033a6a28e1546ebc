//! Names of the objects in the bucket, relative to its prefix. One function a kind of object.
//!
//! An actor's name stands in them as its file name does ([`ActorName::file_stem`](crate::ActorName::file_stem)):
//! one name, one key, and every key within what stores take.

use crate::{
    ActorId, NodeId, Tenant,
    alarm::{Post, Whose},
    history::HistoryFile,
};

/// What the key of every history file of an actor begins with (R-REPL-1).
#[must_use]
pub fn history_folder(tenant: &Tenant, actor: &ActorId) -> String {
    format!("actors/{tenant}/{}/{}/wal/", actor.class, actor.name.file_stem())
}

/// The key of one history file below [`history_folder`].
#[must_use]
pub fn history_file(folder: &str, file: &HistoryFile) -> String {
    format!("{folder}{file}")
}

/// The history file a key below `folder` names; `None` for somebody else's object.
#[must_use]
pub fn parse_history_file(folder: &str, key: &str) -> Option<HistoryFile> {
    key.strip_prefix(folder)?.parse().ok()
}

/// What every node's heartbeat's key begins with: listing it gives the nodes (R-LEASE-1).
pub const NODES: &str = "nodes/";

/// The key of the secret that calls between nodes are signed with (R-CALL-1).
pub const CLUSTER_SECRET: &str = "cluster/secret";

/// The key of a node's heartbeat.
#[must_use]
pub fn node(node: &NodeId) -> String {
    format!("{NODES}{node}")
}

/// The key of an actor's ownership record (R-OWN-1).
#[must_use]
pub fn owner(tenant: &Tenant, actor: &ActorId) -> String {
    format!("owners/{tenant}/{}/{}", actor.class, actor.name.file_stem())
}

/// What the key of every alarm of a tenant begins with. Their order is the order in which they are due (R-ALM-1).
#[must_use]
pub fn alarms_folder(tenant: &Tenant) -> String {
    format!("alarms/{tenant}/")
}

/// What the keys of an actor's alarms that are due at `due_ms` begin with.
#[must_use]
pub fn alarms_due(tenant: &Tenant, whose: &Whose, due_ms: u64) -> String {
    // No part of a name is ever a dot.
    format!("alarms/{tenant}/{due_ms:016x}.{}.{}.", whose.class, whose.stem)
}

/// The key of one alarm.
#[must_use]
pub fn alarm(tenant: &Tenant, whose: &Whose, post: &Post) -> String {
    let Post { due_ms, generation, txid, node } = post;
    format!("{}{generation:016x}-{txid:016x}.{node}", alarms_due(tenant, whose, *due_ms))
}

/// The alarm a key below `folder` ([`alarms_folder`]) names; `None` for somebody else's object.
#[must_use]
pub fn parse_alarm(folder: &str, key: &str) -> Option<(Whose, Post)> {
    let number = |text: &str| {
        let is_whole = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_whole.then(|| u64::from_str_radix(text, 16).ok()).flatten()
    };
    let parts: Vec<_> = key.strip_prefix(folder)?.split('.').collect();
    let [due, class, stem, made, node] = parts[..] else { return None };
    let (generation, txid) = made.split_once('-')?;
    let post = Post {
        due_ms: number(due)?,
        generation: number(generation)?,
        txid: number(txid)?,
        node: node.parse().ok()?,
    };
    (!stem.is_empty()).then_some((Whose { class: class.parse().ok()?, stem: stem.to_owned() }, post))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Point;

    fn actor(name: &str) -> ActorId {
        ActorId { class: "room".parse().unwrap(), name: name.parse().unwrap() }
    }

    // R-REPL-1, case H4
    #[test]
    fn a_history_file_has_one_key_whatever_the_actor_is_called() {
        let tenant: Tenant = "acme".parse().unwrap();
        let file = HistoryFile::snapshot(3, Point { txid: 10, checksum: 0x8000_0000_0000_0005 });
        let name = "0000000000000003/0000000000000001-000000000000000a-0000000000000000-8000000000000005.ltx";
        for (actor_name, segment) in
            [("lobby", "lobby"), ("a/b", "a%2Fb"), ("..x", "%2E%2Ex"), ("%61", "%2561")]
        {
            let folder = history_folder(&tenant, &actor(actor_name));
            assert_eq!(folder, format!("actors/acme/room/{segment}/wal/"));
            let key = history_file(&folder, &file);
            assert_eq!(key, format!("{folder}{name}"));
            assert_eq!(parse_history_file(&folder, &key), Some(file));
        }
    }

    // R-LEASE-1, R-OWN-1
    #[test]
    fn a_heartbeat_and_an_ownership_record_have_these_keys() {
        let tenant: Tenant = "acme".parse().unwrap();
        assert_eq!(node(&"a-1".parse().unwrap()), "nodes/a-1");
        assert_eq!(owner(&tenant, &actor("a/b C")), "owners/acme/room/a%2Fb%20%43");
    }

    #[test]
    fn the_longest_names_give_keys_that_stores_take() {
        let tenant: Tenant = "t".repeat(64).parse().unwrap();
        let actor =
            ActorId { class: "c".repeat(64).parse().unwrap(), name: "ä".repeat(128).parse().unwrap() };
        let key = history_file(&history_folder(&tenant, &actor), &HistoryFile::deletion(1, 1));
        assert!(key.len() <= 512, "{} bytes", key.len());
    }

    #[test]
    fn what_somebody_else_left_in_the_folder_is_no_history_file() {
        let sum = "8000000000000001";
        let good = format!("0000000000000001/0000000000000002-0000000000000002-{sum}-{sum}.ltx");
        assert!(parse_history_file("f/", &format!("f/{good}")).is_some());
        for bad in [
            "",
            "x",
            &good[1..],
            &good.to_uppercase(),
            &good.replace(".ltx", ""),
            &good.replace("1/", "1/x/"),
            &good.replace("2-0000000000000002", "2-0000000000000001"),
            &good.replace("0000000000000002-0000000000000002", "0000000000000000-0000000000000002"),
            &good.replace(sum, "0000000000000001"),
            &good.replace(".ltx", "-0000000000000001.ltx"),
        ] {
            assert_eq!(parse_history_file("f/", &format!("f/{bad}")), None, "{bad:?}");
        }
        assert_eq!(parse_history_file("g/", &format!("f/{good}")), None);
    }

    fn post(due_ms: u64) -> Post {
        Post { due_ms, generation: 3, txid: 9, node: "a-1".parse().unwrap() }
    }

    // R-ALM-1
    #[test]
    fn an_alarm_has_a_key_that_says_all_of_it_and_sorts_by_when_it_is_due() {
        let tenant: Tenant = "acme".parse().unwrap();
        let folder = alarms_folder(&tenant);
        for name in ["lobby", "a/b", "..x", "a.b-c", "ä"] {
            let key = alarm(&tenant, &(&actor(name)).into(), &post(1_700_000_000_000));
            assert!(
                key.starts_with(&alarms_due(&tenant, &(&actor(name)).into(), 1_700_000_000_000)),
                "{key}"
            );
            let (whose, parsed) = parse_alarm(&folder, &key).unwrap();
            assert_eq!((whose.actor(), parsed), (Some(actor(name)), post(1_700_000_000_000)), "{key}");
        }
        let key = |due_ms| alarm(&tenant, &(&actor("x")).into(), &post(due_ms));
        assert_eq!(
            key(0x18b_cfe5_6800),
            "alarms/acme/0000018bcfe56800.room.x.0000000000000003-0000000000000009.a-1"
        );
        let dues = [0, 9, 10, 1_700_000_000_000, 1_700_000_000_001, i64::MAX as u64, u64::MAX];
        assert!(dues.windows(2).all(|pair| key(pair[0]) < key(pair[1])));
    }

    // R-ALM-1
    #[test]
    fn the_object_of_an_alarm_has_the_name_its_key_is_too_short_for() {
        let tenant: Tenant = "t".repeat(64).parse().unwrap();
        let long =
            ActorId { class: "c".repeat(64).parse().unwrap(), name: "ä".repeat(128).parse().unwrap() };
        let key = alarm(&tenant, &(&long).into(), &Post { node: "n".repeat(64).parse().unwrap(), ..post(1) });
        assert!(key.len() <= 512, "{} bytes", key.len());
        let (whose, _) = parse_alarm(&alarms_folder(&tenant), &key).unwrap();
        assert_eq!(whose.actor(), None);
        assert_eq!(whose.named(&crate::alarm::post_body(&long)), Some(long.clone()));
        let other = ActorId { name: "x".parse().unwrap(), ..long };
        assert_eq!(whose.named(&crate::alarm::post_body(&other)), None, "another's name");
        assert_eq!(whose.named(b"{}"), None);
    }

    #[test]
    fn what_somebody_else_left_among_the_alarms_is_none() {
        let good = "000000000000000a.room.x.0000000000000003-0000000000000009.a-1";
        assert!(parse_alarm("alarms/t/", &format!("alarms/t/{good}")).is_some());
        for bad in [
            "",
            "x",
            &good[1..],
            &good.to_uppercase(),
            &good.replace(".a-1", ""),
            &good.replace(".a-1", "."),
            &good.replace("room", "Room"),
            &good.replace(".x.", ".."),
            &good.replace("-0000000000000009", ""),
            &good.replace('a', "+"),
            &format!("{good}.x"),
        ] {
            assert_eq!(parse_alarm("alarms/t/", &format!("alarms/t/{bad}")), None, "{bad:?}");
        }
    }
}
