//! Which part of the node a request path belongs to. Pure.

use wasmkeep_protocol::{ActorClass, ActorId, ActorName, NameError, placement::actor_hash};

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    /// An actor, and the path it sees.
    Actor {
        /// Which.
        id: ActorId,
        /// Percent-encoded as it came; begins with `/`, query included.
        rest: &'a str,
    },
    /// `/_wasmkeep/health`
    Health,
    /// `/_wasmkeep/ready`
    Ready,
    /// `/_wasmkeep/metrics`
    Metrics,
    /// Reserved, and nothing there.
    Reserved,
    /// Everything else.
    Stateless,
    /// `/actor/...` that names no actor.
    BadActor(BadActor),
}

/// Health, readiness and metrics: what operators ask of a node that is full too. `path` is without its query.
pub(crate) fn is_operators(path: &str) -> bool {
    matches!(route(path), Route::Health | Route::Ready | Route::Metrics)
}

/// Why a path under `/actor` names no actor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadActor {
    #[error("the path ends before an actor is named; use /actor/CLASS/NAME")]
    Incomplete,
    #[error("the class in the path cannot be used: {0}")]
    Class(NameError),
    #[error("the actor name in the path cannot be used: {0}")]
    Name(NameError),
}

/// Routes a path with its query (`path_and_query` of the request target).
pub(crate) fn route(target: &str) -> Route<'_> {
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    if let Some(tail) = target.strip_prefix("/actor/") {
        return actor(tail).unwrap_or_else(Route::BadActor);
    }
    match path {
        "/actor" => Route::BadActor(BadActor::Incomplete),
        "/_wasmkeep/health" => Route::Health,
        "/_wasmkeep/ready" => Route::Ready,
        "/_wasmkeep/metrics" => Route::Metrics,
        _ if path == "/_wasmkeep" || path.starts_with("/_wasmkeep/") => Route::Reserved,
        _ => Route::Stateless,
    }
}

/// `tail` follows `/actor/`. The name ends at the first `/` or `?` as the client wrote it; an encoded slash is
/// part of the name.
fn actor(tail: &str) -> Result<Route<'_>, BadActor> {
    let (class, tail) = tail.split_once('/').ok_or(BadActor::Incomplete)?;
    let class: ActorClass = class.parse().map_err(BadActor::Class)?;
    let end = tail.find(['/', '?']).unwrap_or(tail.len());
    let (segment, rest) = tail.split_at(end);
    let name = ActorName::from_path_segment(segment).map_err(BadActor::Name)?;
    Ok(Route::Actor { id: ActorId { class, name }, rest })
}

/// The hash of the actor that a path names, if it names one. Asked for every request before it is parsed, so it
/// makes no copy of an ordinary name.
pub(crate) fn actor_hash_of(path: &str) -> Option<u64> {
    let (class, tail) = path.strip_prefix("/actor/")?.split_once('/')?;
    let segment = &tail[..tail.find(['/', '?']).unwrap_or(tail.len())];
    if segment.contains('%') {
        let name = ActorName::from_path_segment(segment).ok()?;
        return Some(actor_hash(class, name.as_str()));
    }
    Some(actor_hash(class, segment))
}

/// The path an actor sees for what [`route`] calls its rest.
pub(crate) fn guest_target(rest: &str) -> std::borrow::Cow<'_, str> {
    if rest.starts_with('/') { rest.into() } else { format!("/{rest}").into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actor_of(target: &str) -> Result<(String, String, String), BadActor> {
        match route(target) {
            Route::Actor { id, rest } => {
                Ok((id.class.to_string(), id.name.to_string(), guest_target(rest).into_owned()))
            }
            Route::BadActor(why) => Err(why),
            other => panic!("{target}: {other:?}"),
        }
    }

    #[test]
    fn an_actor_path_names_one_actor_and_the_rest_is_its_own() {
        // case H4
        for (target, name, rest) in [
            ("/actor/counter/alice", "alice", "/"),
            ("/actor/counter/alice/", "alice", "/"),
            ("/actor/counter/alice/a/b?c=d", "alice", "/a/b?c=d"),
            ("/actor/counter/alice?x=/y", "alice", "/?x=/y"),
            ("/actor/counter/a%2Fb/c", "a/b", "/c"),
            ("/actor/counter/%252f", "%2f", "/"),
            ("/actor/counter/%61", "a", "/"),
            ("/actor/counter/a+b", "a+b", "/"),
            ("/actor/counter/x%3Fy%23z", "x?y#z", "/"),
            ("/actor/counter/x//y", "x", "//y"),
        ] {
            let expected = ("counter".to_owned(), name.to_owned(), rest.to_owned());
            assert_eq!(actor_of(target), Ok(expected), "{target}");
        }
    }

    #[test]
    fn paths_that_name_no_actor_say_why() {
        for (target, why) in [
            ("/actor", BadActor::Incomplete),
            ("/actor/", BadActor::Incomplete),
            ("/actor/counter", BadActor::Incomplete),
            ("/actor/counter/", BadActor::Name(NameError::Empty)),
            ("/actor/counter//x", BadActor::Name(NameError::Empty)),
            ("/actor/counter/..", BadActor::Name(NameError::Dots)),
            ("/actor/counter/%2e%2e/x", BadActor::Name(NameError::Dots)),
            ("/actor/counter/%zz", BadActor::Name(NameError::PercentEncoding)),
            ("/actor/counter/%00", BadActor::Name(NameError::Character('\0'))),
            ("/actor/Counter/x", BadActor::Class(NameError::Character('C'))),
            ("/actor/%63ounter/x", BadActor::Class(NameError::Character('%'))),
        ] {
            assert_eq!(actor_of(target), Err(why), "{target}");
        }
    }

    #[test]
    fn a_path_leads_to_the_shard_of_the_actor_it_names() {
        for target in
            ["/actor/c/alice", "/actor/c/alice/x?y", "/actor/c/a%2Fb", "/actor/c/%61lice?z", "/actor/c/é"]
        {
            let Route::Actor { id, .. } = route(target) else { panic!("{target}") };
            assert_eq!(actor_hash_of(target), Some(id.hash()), "{target}");
        }
        assert_eq!(actor_hash_of("/actor/c"), None);
        assert_eq!(actor_hash_of("/actor/c/%zz"), None);
        assert_eq!(actor_hash_of("/other"), None);
    }

    #[test]
    fn the_platform_keeps_its_own_paths_and_leaves_the_others() {
        assert_eq!(route("/_wasmkeep/health?x"), Route::Health);
        assert_eq!(route("/_wasmkeep/ready"), Route::Ready);
        assert_eq!(route("/_wasmkeep/metrics"), Route::Metrics);
        assert_eq!(route("/_wasmkeep/other"), Route::Reserved);
        assert_eq!(route("/_wasmkeeper"), Route::Stateless);
        assert_eq!(route("/actors/x"), Route::Stateless);
        assert_eq!(route("/"), Route::Stateless);
        for (path, is_theirs) in [
            ("/_wasmkeep/health", true),
            ("/_wasmkeep/ready", true),
            ("/_wasmkeep/metrics", true),
            ("/_wasmkeep/other", false),
            ("/actor/counter/health", false),
            ("/", false),
        ] {
            assert_eq!(is_operators(path), is_theirs, "{path}");
        }
    }
}
