//! Credentials that expire (R-FLAG-4): used until they do, and renewed beside the requests that use them.
//!
//! The client library fetches anew in front of a request as soon as five minutes are left, and fails the request when
//! that fails, so a pause of the agent that gives them out would end a node whose credentials are still good.

mod source;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

pub(crate) use source::{ContainerToken, Fetched, Source};

/// Time left from which new ones are asked for. Whoever gives them out has newer ones by then.
const RENEW_AHEAD: Duration = Duration::from_secs(300);

/// Least time between two fetches.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Longest pause after a failure while the credentials at hand are good.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Longest pause after a failure while there are none.
const PAUSE_MAX_WITHOUT: Duration = Duration::from_secs(2);

/// A whole fetch.
const FETCH_MAX: Duration = Duration::from_secs(15);

type Fetching = BoxFuture<'static, Result<Fetched, String>>;

/// Gives out the credentials of one source. Clones share them.
#[derive(Clone)]
pub(crate) struct Renewing(Arc<Shared>);

struct Shared {
    fetch: Box<dyn Fn() -> Fetching + Send + Sync>,
    clock: Box<dyn Fn() -> SystemTime + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    current: Option<Fetched>,
    /// Closed once the fetch that is under way has ended.
    under_way: Option<watch::Receiver<()>>,
    /// No fetch begins before.
    next_at: Option<Instant>,
    fetched_at: Option<Instant>,
    failures: u32,
    said: String,
}

enum Look {
    Good(Arc<AwsCredential>),
    UnderWay(watch::Receiver<()>),
    Failed(String),
}

impl Renewing {
    /// Of a source outside, which is asked when the first request needs credentials.
    pub(crate) fn of(source: Source) -> reqwest::Result<Self> {
        let client = source.client()?;
        let source = Arc::new(source);
        let fetch = move || {
            let (client, source) = (client.clone(), Arc::clone(&source));
            Box::pin(async move { source.fetch(&client).await }) as Fetching
        };
        Ok(Self::new(fetch, SystemTime::now))
    }

    fn new(
        fetch: impl Fn() -> Fetching + Send + Sync + 'static,
        clock: impl Fn() -> SystemTime + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Shared { fetch: Box::new(fetch), clock: Box::new(clock), state: Mutex::default() }))
    }

    /// The bucket called the credentials at hand invalid or expired: newer ones are asked for soon.
    pub(crate) fn refused(&self) {
        let mut state = self.0.state();
        let soon = state.fetched_at.map_or_else(Instant::now, |at| at + PAUSE_MIN);
        state.next_at = state.next_at.map(|at| at.min(soon));
    }

    /// What there is for a request; begins a fetch when one is due.
    fn look(&self) -> Look {
        let mut state = self.0.state();
        let under_way = state.under_way.clone().filter(|fetch| fetch.has_changed().is_ok());
        let is_due = state.next_at.is_none_or(|at| at <= Instant::now());
        let under_way = match under_way {
            None if is_due => Some(self.begin(&mut state)),
            under_way => under_way,
        };
        let now = (self.0.clock)();
        match (state.current.as_ref().filter(|current| current.expires > now), under_way) {
            (Some(current), _) => Look::Good(Arc::clone(&current.credential)),
            (None, Some(fetch)) => Look::UnderWay(fetch),
            (None, None) => Look::Failed(state.said.clone()),
        }
    }

    fn begin(&self, state: &mut State) -> watch::Receiver<()> {
        let (ended, under_way) = watch::channel(());
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            let fetched = timeout(FETCH_MAX, (shared.fetch)()).await;
            shared.settle(fetched.unwrap_or_else(|_| Err(format!("no answer within {FETCH_MAX:?}"))));
            drop(ended);
        });
        state.under_way = Some(under_way.clone());
        under_way
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, fetched: Result<Fetched, String>) {
        let now = (self.clock)();
        let fetched = fetched.and_then(|fetched| match fetched.expires > now {
            true => Ok(fetched),
            false => Err("what was given out has expired already; check this machine's clock".to_owned()),
        });
        let mut state = self.state();
        let left = |of: &Fetched| of.expires.duration_since(now).unwrap_or_default();
        let pause = match fetched {
            Ok(fetched) => {
                if state.failures > 0 {
                    tracing::info!("the bucket's credentials were renewed");
                }
                (state.failures, state.fetched_at) = (0, Some(Instant::now()));
                let pause = until_renewal(left(&fetched));
                state.current = Some(fetched);
                pause
            }
            Err(said) => {
                state.failures = state.failures.saturating_add(1);
                let good_for = state.current.as_ref().map(left).unwrap_or_default();
                tracing::warn!(
                    good_for_s = good_for.as_secs(),
                    "the bucket's credentials were not renewed: {said}"
                );
                state.said = said;
                after_failure(state.failures, good_for)
            }
        };
        state.next_at = Some(Instant::now() + pause);
    }
}

/// From a fetch to the next one, by the time its credentials have left. Some agents give out what has less than
/// [`RENEW_AHEAD`] left: they are asked often enough to learn of newer ones well before the end.
fn until_renewal(left: Duration) -> Duration {
    match left.checked_sub(RENEW_AHEAD) {
        Some(ahead) if ahead > PAUSE_MIN => ahead,
        _ => (left / 16).max(PAUSE_MIN),
    }
}

fn after_failure(failures: u32, left: Duration) -> Duration {
    let pause = PAUSE_MIN * 2_u32.pow(failures.saturating_sub(1).min(5));
    pause.min(if left.is_zero() { PAUSE_MAX_WITHOUT } else { PAUSE_MAX.min(left / 4).max(PAUSE_MIN) })
}

#[async_trait::async_trait]
impl CredentialProvider for Renewing {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        loop {
            match self.look() {
                Look::Good(credential) => return Ok(credential),
                // Ends in an error, when whoever fetches lets go of the other end.
                Look::UnderWay(mut fetch) => drop(fetch.changed().await),
                Look::Failed(said) => {
                    let source = format!("no credentials: {said}").into();
                    return Err(object_store::Error::Generic { store: "S3", source });
                }
            }
        }
    }
}

impl std::fmt::Debug for Renewing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Renewing")
    }
}

#[cfg(test)]
mod tests;
