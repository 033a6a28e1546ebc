//! Tells when a source has changed, once for what an editor does in many steps.

use std::{
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

/// How long nothing must change before a change is told.
const QUIET: Duration = Duration::from_millis(150);

/// A change is told at the latest after this, however busy the folder is.
const LATEST: Duration = Duration::from_secs(2);

/// Which files count.
#[derive(Debug, Clone)]
struct Filter {
    folders: Vec<PathBuf>,
    target_dir: PathBuf,
}

impl Filter {
    /// Whether a change of `path` may change the component: not what builds and the actors write, nor what is
    /// hidden, nor what editors leave for a moment.
    fn counts(&self, path: &Path) -> bool {
        if path.starts_with(&self.target_dir) {
            return false;
        }
        // The nearest of the folders: one may lie in another.
        let inside = self.folders.iter().filter_map(|folder| path.strip_prefix(folder).ok());
        let Some(inside) = inside.min_by_key(|inside| inside.components().count()) else { return false };
        let names: Vec<_> = inside.iter().map(|name| name.to_string_lossy()).collect();
        let is_ours = names.first().is_some_and(|first| *first != "target" && *first != "node_modules");
        let is_kept = names.last().is_some_and(|last| !last.ends_with('~') && *last != "4913");
        is_ours && is_kept && !names.iter().any(|name| name.starts_with('.'))
    }

    fn concerns(&self, event: &Event) -> bool {
        !matches!(event.kind, EventKind::Access(_)) && event.paths.iter().any(|path| self.counts(path))
    }
}

/// Watches `folders`, without `target_dir`, for as long as the process lives, and calls `changed`.
///
/// # Errors
/// When the system refuses, for instance for lack of inotify watches.
pub(super) fn watch(
    folders: Vec<PathBuf>,
    target_dir: PathBuf,
    changed: impl Fn() + Send + 'static,
) -> Result<(), notify::Error> {
    let (sender, events) = mpsc::channel();
    let mut watcher = notify::recommended_watcher(sender)?;
    let filter = Filter { folders, target_dir };
    for folder in &filter.folders {
        // Not as one tree: what is built lies below it, in thousands of folders that nobody need watch.
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
        for entry in folder.read_dir().map_err(notify::Error::io)?.flatten() {
            watch_tree(&mut watcher, &filter, &entry.path())?;
        }
    }
    thread::spawn(move || tell(watcher, &filter, &events, &changed));
    Ok(())
}

fn watch_tree(watcher: &mut RecommendedWatcher, filter: &Filter, path: &Path) -> Result<(), notify::Error> {
    if path.is_dir() && filter.counts(path) { watcher.watch(path, RecursiveMode::Recursive) } else { Ok(()) }
}

fn tell(
    mut watcher: RecommendedWatcher,
    filter: &Filter,
    events: &Receiver<notify::Result<Event>>,
    changed: &impl Fn(),
) {
    let mut is_due: Option<Instant> = None;
    loop {
        let next = match is_due {
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(latest) => {
                let left = latest.saturating_duration_since(Instant::now());
                events.recv_timeout(QUIET.min(left))
            }
        };
        match next {
            Ok(Ok(event)) if filter.concerns(&event) => {
                is_due = is_due.or(Some(Instant::now() + LATEST));
                for path in event.paths.iter().filter(|_| event.kind.is_create()) {
                    if let Err(error) = watch_tree(&mut watcher, filter, path) {
                        tracing::warn!("{path:?} is not watched: {error}");
                    }
                }
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!("changes may go unseen: {error}"),
            Err(RecvTimeoutError::Timeout) => {
                is_due = None;
                changed();
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn filter() -> Filter {
        Filter {
            folders: vec!["/p".into(), "/p/wasmkeep/sdk".into(), "/shared".into()],
            target_dir: "/p/out".into(),
        }
    }

    #[test]
    fn only_what_a_component_is_made_of_counts() {
        for (path, counts) in [
            ("/p/src/lib.rs", true),
            ("/p/src/target/mod.rs", true),
            ("/p/Cargo.toml", true),
            ("/p/src/page.html", true),
            ("/p/wasmkeep/sdk/src/lib.rs", true),
            ("/shared/src/lib.rs", true),
            ("/p/target/debug/a.d", false),
            ("/p/out/debug/a.d", false),
            ("/p/.git/index", false),
            ("/p/.wasmkeep/actors/default/p/a.db", false),
            ("/p/src/.lib.rs.swp", false),
            ("/p/src/lib.rs~", false),
            ("/p/src/4913", false),
            ("/p/node_modules/x/y.js", false),
            ("/elsewhere/src/lib.rs", false),
            ("/p", false),
        ] {
            assert_eq!(filter().counts(Path::new(path)), counts, "{path}");
        }
    }

    #[test]
    fn many_steps_are_one_change_and_reading_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("src")).unwrap();
        fs::create_dir_all(root.join("target")).unwrap();
        fs::write(root.join("src/lib.rs"), "1").unwrap();
        let (sender, changes) = mpsc::channel();
        watch(vec![root.clone()], root.join("target"), move || sender.send(()).unwrap()).unwrap();
        let told = || changes.recv_timeout(Duration::from_secs(60)).is_ok();
        let silent = || changes.recv_timeout(QUIET * 4).is_err();
        for n in 0..20 {
            fs::write(root.join("src/lib.rs"), n.to_string()).unwrap();
            fs::write(root.join("src/new.rs~"), "x").unwrap();
        }
        assert!(told() && silent());
        fs::read(root.join("src/lib.rs")).unwrap();
        fs::write(root.join("target/a.d"), "x").unwrap();
        assert!(silent());
        // A rename over the file, as editors do, and a folder that was not there.
        fs::write(root.join("src/.tmp"), "2").unwrap();
        fs::rename(root.join("src/.tmp"), root.join("src/lib.rs")).unwrap();
        assert!(told() && silent());
        fs::create_dir(root.join("assets")).unwrap();
        assert!(told());
        fs::write(root.join("assets/page.html"), "x").unwrap();
        assert!(told());
    }
}
