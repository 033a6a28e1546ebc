//! A bucket in memory that fails on demand and keeps a list of what it was asked.

use std::{
    cell::{Cell, RefCell},
    ops::Range,
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use futures::stream;
use tokio::time::sleep;
use wasmkeep_bucket::{
    Body, Bucket, Failure, Key, ListQuery, MemoryBucket, Meta, Object, Outcome, Page, Precondition,
    ReadError, UnknownCause,
};

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    Put,
    Get,
    Delete,
    List,
}

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// It is carried out and never answered.
    Hang,
    /// It is carried out, and its answer is lost.
    ReplyLost,
    /// The connection breaks before it is carried out.
    Broken,
    Throttled,
    Unavailable,
    Refused,
    /// An answer that says neither yes nor no.
    Ambiguous,
    /// It takes this long.
    Late(Duration),
    /// The body comes in this many pieces, with this pause before each.
    Slow(usize, Duration),
    /// The body ends early.
    Short,
    /// The bucket knows that it is lost.
    Damaged,
}

type Script = dyn Fn(Ask, &str) -> Fault;

/// See the module. Clones share everything.
#[derive(Clone)]
pub struct ScriptedBucket {
    pub memory: MemoryBucket,
    script: Rc<RefCell<Rc<Script>>>,
    asked: Rc<RefCell<Vec<(Ask, String)>>>,
    page_max: Rc<Cell<usize>>,
}

impl ScriptedBucket {
    pub fn new() -> Self {
        Self {
            memory: MemoryBucket::with_clock(|| 1_000_000),
            script: Rc::new(RefCell::new(Rc::new(|_, _| Fault::None))),
            asked: Rc::default(),
            page_max: Rc::new(Cell::new(1_000)),
        }
    }

    /// From here on `script` decides, by kind and key.
    pub fn script(&self, script: impl Fn(Ask, &str) -> Fault + 'static) {
        *self.script.borrow_mut() = Rc::new(script);
    }

    /// From here on requests of this kind meet these faults in turn, then none.
    pub fn faults(&self, ask: Ask, faults: &[Fault]) {
        let left = RefCell::new(faults.iter().rev().copied().collect::<Vec<_>>());
        self.script(
            move |asked, _| {
                if asked == ask { left.borrow_mut().pop().unwrap_or(Fault::None) } else { Fault::None }
            },
        );
    }

    /// Listings come in pages of this many keys.
    pub fn pages_of(&self, keys: usize) {
        self.page_max.set(keys);
    }

    /// Requests of a kind so far.
    pub fn count(&self, ask: Ask) -> usize {
        self.asked.borrow().iter().filter(|(asked, _)| *asked == ask).count()
    }

    /// What was asked since this was called last, in order.
    pub fn take_asked(&self) -> Vec<(Ask, String)> {
        self.asked.take()
    }

    /// Every key there is.
    pub async fn keys(&self) -> Vec<String> {
        let query = ListQuery { prefix: String::new(), start_after: None, token: None, page_max: 100_000 };
        let page = self.memory.list(&query).await.unwrap();
        page.objects.into_iter().map(|object| object.name).collect()
    }

    fn meet(&self, ask: Ask, key: &str) -> Fault {
        self.asked.borrow_mut().push((ask, key.to_owned()));
        let script = Rc::clone(&self.script.borrow());
        script(ask, key)
    }
}

fn failure(fault: Fault) -> Option<Failure> {
    Some(match fault {
        Fault::Throttled => Failure::Throttled("SlowDown".to_owned()),
        Fault::Unavailable | Fault::Broken | Fault::ReplyLost | Fault::Ambiguous => {
            Failure::Unavailable("as scripted".to_owned())
        }
        Fault::Refused => Failure::Refused("as scripted".to_owned()),
        _ => return None,
    })
}

async fn wait(fault: Fault) {
    match fault {
        Fault::Late(time) => sleep(time).await,
        Fault::Hang => std::future::pending().await,
        _ => {}
    }
}

impl Bucket for ScriptedBucket {
    async fn get(&self, key: &Key, range: Option<Range<u64>>) -> Result<Object, ReadError> {
        let fault = self.meet(Ask::Get, key.as_str());
        wait(fault).await;
        if let Some(failure) = failure(fault) {
            return Err(failure.into());
        }
        if fault == Fault::Damaged {
            return Err(ReadError::Damaged("as scripted".to_owned()));
        }
        let Object { meta, range, body } = self.memory.get(key, range).await?;
        let whole = Object { meta: meta.clone(), range: range.clone(), body }.bytes(u64::MAX).await?;
        let body = match fault {
            Fault::Slow(pieces, pause) => slow(whole, pieces, pause),
            Fault::Short => {
                let rest = whole.slice(..whole.len() - 1);
                Body::counted(whole.len() as u64, stream::iter([Ok(rest)]))
            }
            _ => Body::from_bytes(whole),
        };
        Ok(Object { meta, range, body })
    }

    async fn head(&self, key: &Key) -> Result<Meta, ReadError> {
        self.memory.head(key).await
    }

    async fn put(&self, key: &Key, body: Bytes, condition: &Precondition) -> Outcome {
        let fault = self.meet(Ask::Put, key.as_str());
        match fault {
            Fault::Hang | Fault::ReplyLost => {
                let _ = self.memory.put(key, body, condition).await;
                wait(fault).await;
                Outcome::Unknown(UnknownCause::NoReply("as scripted".to_owned()))
            }
            Fault::Broken => Outcome::Unknown(UnknownCause::NoReply("as scripted".to_owned())),
            Fault::Ambiguous => {
                Outcome::Unknown(UnknownCause::Ambiguous { status: 500, code: "InternalError".to_owned() })
            }
            _ => {
                wait(fault).await;
                match failure(fault) {
                    Some(failure) => Outcome::Failed(failure),
                    None => self.memory.put(key, body, condition).await,
                }
            }
        }
    }

    async fn delete(&self, key: &Key) -> Result<(), Failure> {
        let fault = self.meet(Ask::Delete, key.as_str());
        wait(fault).await;
        match failure(fault) {
            Some(failure) => Err(failure),
            None => self.memory.delete(key).await,
        }
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, ReadError> {
        let fault = self.meet(Ask::List, &query.prefix);
        wait(fault).await;
        if let Some(failure) = failure(fault) {
            return Err(failure.into());
        }
        let query = ListQuery { page_max: query.page_max.min(self.page_max.get()), ..query.clone() };
        self.memory.list(&query).await
    }
}

/// A body in `pieces`, with `pause` before each.
fn slow(whole: Bytes, pieces: usize, pause: Duration) -> Body {
    let length = whole.len();
    let cuts = (0..pieces).map(move |piece| (piece * length / pieces)..((piece + 1) * length / pieces));
    let chunks = stream::unfold(cuts, move |mut cuts| {
        let whole = whole.clone();
        async move {
            let range = cuts.next()?;
            sleep(pause).await;
            Some((Ok(whole.slice(range)), cuts))
        }
    });
    Body::counted(length as u64, chunks)
}
