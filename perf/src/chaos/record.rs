//! What a client knows of its writes, and what the actors have in the end.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

use crate::http::Answer;

/// What became of one write, as its client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Acknowledged as durable: it must be there, once.
    Acknowledged,
    /// No clear answer: it may be there, once.
    Unknown,
    /// Refused before it ran: it must not be there.
    Refused,
}

impl Fate {
    /// What an answer to a durable write says, or that there is none.
    ///
    /// # Errors
    /// An answer that no document knows of.
    pub fn of(answer: Option<&Answer>) -> Result<Self> {
        let Some(answer) = answer else { return Ok(Self::Unknown) };
        let text = answer.text();
        Ok(match answer.status {
            200 if text.contains("\"ok\"") => Self::Acknowledged,
            // `not-durable`, or ended while it ran.
            400 if text.contains("not-durable") || text.contains("interrupted") => Self::Unknown,
            500 if text.contains("lost the actor") => Self::Unknown,
            503 if text.contains("did not answer; retry") && !text.contains("bucket") => Self::Unknown,
            503 if answer.retry_after => Self::Refused,
            504 => Self::Unknown,
            status => bail!("a write was answered {status}: {text}"),
        })
    }
}

/// What became of a GET or a query that changes nothing.
///
/// # Errors
/// An answer that no document knows of.
pub fn was_served(answer: &Answer) -> Result<bool> {
    let text = answer.text();
    match answer.status {
        200 => Ok(true),
        500 if text.contains("lost the actor") => Ok(false),
        503 if answer.retry_after => Ok(false),
        504 => Ok(false),
        status => bail!("a read was answered {status}: {text}"),
    }
}

/// The writes of one actor, in the order in which its one client sent them.
#[derive(Debug, Default)]
pub struct Record {
    writes: BTreeMap<u64, Fate>,
}

impl Record {
    /// The number of the next write.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.writes.last_key_value().map_or(1, |(last, _)| last + 1)
    }

    /// Notes what became of a write.
    pub fn note(&mut self, write: u64, fate: Fate) {
        self.writes.insert(write, fate);
    }

    /// How many were acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> usize {
        self.writes.values().filter(|fate| **fate == Fate::Acknowledged).count()
    }

    /// How many there may be: those acknowledged, and those of which nobody knows with them.
    #[must_use]
    pub fn bounds(&self) -> (usize, usize) {
        let may_be = self.writes.values().filter(|fate| **fate != Fate::Refused).count();
        (self.acknowledged(), may_be)
    }

    /// What of `found`, in the order in which it was stored, must not be.
    #[must_use]
    pub fn judge(&self, actor: &str, found: &[u64]) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut seen = BTreeMap::new();
        for write in found {
            *seen.entry(*write).or_insert(0) += 1;
        }
        for (write, times) in &seen {
            match self.writes.get(write) {
                None => wrong.push(format!("{actor}: {write} was never written")),
                Some(Fate::Refused) => wrong.push(format!("{actor}: {write} was refused, and ran")),
                Some(_) if *times > 1 => wrong.push(format!("{actor}: {write} is there {times} times")),
                Some(_) => {}
            }
        }
        for (write, fate) in &self.writes {
            if *fate == Fate::Acknowledged && !seen.contains_key(write) {
                wrong.push(format!("{actor}: {write} was acknowledged, and is lost"));
            }
        }
        // One that was acknowledged had been stored before the next was sent.
        let known: Vec<u64> = found
            .iter()
            .copied()
            .filter(|write| self.writes.get(write) == Some(&Fate::Acknowledged))
            .collect();
        if !known.is_sorted() {
            wrong.push(format!("{actor}: acknowledged writes are out of order"));
        }
        wrong
    }
}

/// How many numbers an actor has, from the answer to a query for that.
///
/// # Errors
/// Not such an answer.
pub fn count(answer: &Answer) -> Result<usize> {
    let value: serde_json::Value = serde_json::from_str(&answer.text()).context("the rows")?;
    let count = value["ok"]["rows"][0][0].as_u64().with_context(|| format!("a count in {value}"))?;
    Ok(usize::try_from(count)?)
}

/// The numbers that an actor has, from the answer to a query for them.
///
/// # Errors
/// Not such an answer.
pub fn numbers(answer: &Answer) -> Result<Vec<u64>> {
    let value: serde_json::Value = serde_json::from_str(&answer.text()).context("the rows")?;
    let text = value["ok"]["rows"][0][0].as_str().with_context(|| format!("a list in {value}"))?;
    serde_json::from_str(text).with_context(|| format!("numbers in {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let mut record = Record::default();
        for (write, fate) in
            [(1, Fate::Acknowledged), (2, Fate::Unknown), (3, Fate::Refused), (4, Fate::Acknowledged)]
        {
            assert_eq!(record.next(), write);
            record.note(write, fate);
        }
        record
    }

    #[test]
    fn what_was_acknowledged_is_there_once_and_what_was_refused_is_not() {
        for (found, wrong) in [
            (&[1, 4][..], 0),
            (&[1, 2, 4], 0),
            (&[1], 1),
            (&[1, 4, 4], 1),
            (&[1, 2, 2, 4], 1),
            (&[1, 3, 4], 1),
            (&[1, 4, 9], 1),
            (&[4, 1], 1),
            (&[], 2),
        ] {
            assert_eq!(
                record().judge("a", found).len(),
                wrong,
                "{found:?}: {:?}",
                record().judge("a", found)
            );
        }
    }

    #[test]
    fn an_answer_says_whether_a_write_stands() {
        let answer = |status, text: &str, retry_after| {
            Some(Answer { status, body: text.as_bytes().to_vec(), retry_after, node: None })
        };
        for (given, fate) in [
            (answer(200, r#"{"ok":{"rows":1}}"#, false), Fate::Acknowledged),
            (answer(503, "the actor's node is not reachable; retry", true), Fate::Refused),
            (answer(503, "the actor's node did not answer; retry", true), Fate::Unknown),
            (answer(504, "", false), Fate::Unknown),
            (None, Fate::Unknown),
        ] {
            assert_eq!(Fate::of(given.as_ref()).unwrap(), fate, "{given:?}");
        }
        assert!(Fate::of(answer(418, "", false).as_ref()).is_err());
    }
}
