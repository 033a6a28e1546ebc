//! Between two lives: opens every database, as the next life would, and reads all of it.

use std::rc::Rc;

use wasmkeep_storage::{Database, Value};

use crate::{
    guest,
    history::{ActorNumber, Found, Record},
    stage::Stage,
};

/// Polls that reading one database takes at most.
const POLLS_MAX: u64 = 100_000;

/// Records what each actor's database holds. The stage's executor must have nothing else to do.
pub fn inspect(stage: &Rc<Stage>) {
    for actor in 0..stage.run.cast.len() {
        let path = stage.path(actor);
        if !path.exists() {
            stage.record(Record::Seen { actor, found: Found::default() });
            stage.record(Record::SeenVersion { actor, version: None });
            stage.record(Record::AlarmSeen { actor, pending: None, attempt: None, wake: None });
            continue;
        }
        match Database::open(&path, &stage.config()) {
            Ok(database) => {
                let reader = stage.clone();
                stage.executor.spawn(async move { read(&reader, actor, &database).await });
                if !stage.executor.drain(POLLS_MAX) {
                    stage.record(Record::Unsound { actor, text: "reading it does not end".into() });
                }
            }
            Err(error) => {
                let text = error.to_string().replace(&*stage.folder.to_string_lossy(), "");
                stage.record(Record::Unsound { actor, text });
            }
        }
    }
}

async fn read(stage: &Stage, actor: ActorNumber, database: &Database) {
    let unsound = |text: String| stage.record(Record::Unsound { actor, text });
    match database.query("PRAGMA integrity_check", Vec::new()).await {
        Ok(answer) if answer.rows == [[Value::Text("ok".into())]] => {}
        answer => unsound(format!("integrity_check: {answer:?}")),
    }
    match guest::read(database).await {
        Ok(found) => stage.record(Record::Seen { actor, found }),
        Err(error) => unsound(format!("reading it: {error}")),
    }
    match database.init_version() {
        Ok(version) => {
            // What is no number of ours comes from a broken variant.
            let version = version.map(|version| version.parse().unwrap_or(0));
            stage.record(Record::SeenVersion { actor, version });
        }
        Err(error) => unsound(format!("reading its version: {error}")),
    }
    match database.alarm() {
        Ok(alarm) => {
            let attempt = alarm.attempt.map(|attempt| attempt.due_ms);
            let wake = alarm.wake().map(|wake| wake.at_ms);
            stage.record(Record::AlarmSeen { actor, pending: alarm.pending_ms, attempt, wake });
        }
        Err(error) => unsound(format!("reading its alarm: {error}")),
    }
}
