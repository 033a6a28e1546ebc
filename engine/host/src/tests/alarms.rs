//! The alarm as a guest sets it.

use std::rc::Rc;

use serde_json::{Value, json};
use wasmkeep_actor::{Guest as _, alarm::Book};
use wasmkeep_protocol::alarm::Alarm;
use wasmkeep_storage::{Config, Database};

use super::{
    kit::{self, RUNTIME, block_on, exchange, get},
    samples::sample,
};
use crate::{Instance, Setting};

const NOW: u64 = 1_700_000_000_000;

struct Rig {
    instance: Instance,
    database: Rc<Database>,
    book: Rc<Book>,
    _folder: tempfile::TempDir,
}

impl Rig {
    fn new(guest: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = Rc::new(Database::open(&folder.path().join("a.db"), &Config::default()).unwrap());
        let book = Rc::new(Book::new((), []));
        let setting = Setting {
            database: Some(Rc::clone(&database)),
            alarms: Some(Rc::clone(&book)),
            ..kit::setting()
        };
        let mut instance =
            block_on(RUNTIME.load_actor(&sample(guest)).unwrap().instantiate(setting)).unwrap();
        assert_eq!(block_on(instance.init()), Ok(()));
        Self { instance, database, book, _folder: folder }
    }

    /// What the guest is told by `/alarm`.
    fn ask(&mut self, query: &str) -> Value {
        let (_, answer) = block_on(exchange(&mut self.instance, get(&format!("/alarm{query}"))));
        serde_json::from_str(answer.unwrap().text()).unwrap()
    }
}

#[test]
fn a_guest_sets_reads_and_clears_its_alarm() {
    // R-ALM-1
    let mut rig = Rig::new("sql");
    assert_eq!(rig.ask(""), json!({ "ok": null }));
    assert_eq!(rig.ask(&format!("?set={NOW}")), json!({ "ok": null }));
    assert_eq!(rig.ask(""), json!({ "ok": NOW }));
    assert_eq!(rig.database.alarm().unwrap(), Alarm { pending_ms: Some(NOW), attempt: None });
    assert_eq!(rig.book.len(), 1, "announced");
    assert_eq!(rig.ask("?set="), json!({ "ok": null }));
    assert_eq!(rig.ask(""), json!({ "ok": null }));
    assert_eq!(rig.database.alarm().unwrap(), Alarm::default());
}

#[test]
fn a_time_that_cannot_be_kept_is_refused() {
    let mut rig = Rig::new("sql");
    let refused = rig.ask(&format!("?set={}", 1_u64 << 63));
    assert_eq!(refused, json!({ "error": "Error::Refused(\"the time is over 2^63-1 ms\")" }));
    assert_eq!(rig.ask(&format!("?set={}", (1_u64 << 63) - 1)), json!({ "ok": null }));
    assert_eq!(rig.ask("?set=0"), json!({ "ok": null }), "the past is due at once");
}
