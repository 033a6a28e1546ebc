//! Names of the objects in the bucket, relative to its prefix. One function a kind of object.
//!
//! An actor's name stands in them as its file name does ([`ActorName::file_stem`](crate::ActorName::file_stem)):
//! one name, one key, and every key within what stores take.

use crate::{ActorId, NodeId, Tenant, history::HistoryFile};

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
}
