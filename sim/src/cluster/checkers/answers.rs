//! Each request is answered once or its client has left; it runs at most once (R-FWD-2); what was told that it did not
//! run did not, and what was served ran to its end.

use std::collections::BTreeMap;

use super::Checker;
use crate::cluster::{
    record::{NODES_EVENTS, Record, RequestNumber, Told},
    time::Time,
};

/// See the module.
#[derive(Debug, Default)]
pub struct Answers(BTreeMap<RequestNumber, Asked>);

#[derive(Debug, Default)]
struct Asked {
    left: bool,
    told: Option<Told>,
    began: bool,
    done: bool,
}

impl Answers {
    fn told(&mut self, request: RequestNumber, told: Told) -> Result<(), String> {
        let asked = self.0.entry(request).or_default();
        if let Some(before) = asked.told.replace(told) {
            return Err(format!("request {request} was told {before:?} and {told:?}"));
        }
        match told {
            Told::NotRun(_) if asked.began => {
                Err(format!("request {request} was told that it did not run, and did"))
            }
            Told::Served(_) if !asked.done => {
                Err(format!("request {request} was told that it was served, and was not"))
            }
            _ => Ok(()),
        }
    }
}

impl Checker for Answers {
    fn name(&self) -> &'static str {
        "answers"
    }

    fn see(&mut self, _: Time, record: &Record) -> Result<(), String> {
        match record {
            Record::Asked { request, .. } => {
                self.0.entry(*request).or_default();
            }
            Record::Left { request } => self.0.entry(*request).or_default().left = true,
            Record::Told { request, told } => return self.told(*request, *told),
            Record::RunBegan { request, .. } if *request < NODES_EVENTS => {
                let asked = self.0.entry(*request).or_default();
                if std::mem::replace(&mut asked.began, true) {
                    return Err(format!("request {request} runs a second time"));
                }
                if let Some(Told::NotRun(_)) = asked.told {
                    return Err(format!("request {request} runs after it was told that it did not"));
                }
            }
            Record::RunEnded { request, done: true, .. } if *request < NODES_EVENTS => {
                self.0.entry(*request).or_default().done = true;
            }
            Record::Over => {
                let open = self.0.iter().find(|(_, asked)| asked.told.is_none() && !asked.left);
                if let Some((request, _)) = open {
                    return Err(format!("request {request} was never answered"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
