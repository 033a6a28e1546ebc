use std::task::Context;

use futures::{executor::LocalPool, task::LocalSpawnExt};
use wasmkeep_actor::{Event, Refusal};
use wasmkeep_host::{ActorEvent, AnswerReceiver, HttpEvent, RequestBody, Unanswered};

use super::*;

/// A gate with its keeper, and a bucket in which transactions land when a test says so.
struct Rig {
    pool: LocalPool,
    gate: Rc<Gate>,
    bucket: Rc<Bucket>,
}

#[derive(Default)]
struct Bucket {
    landed: Cell<u64>,
    is_lost: Cell<bool>,
    /// What a look at the commits of a running event gives, one after the other.
    commits: RefCell<Vec<Result<u64, Stuck>>>,
    waker: Cell<Option<Waker>>,
}

impl Bucket {
    async fn landed(self: Rc<Self>, txid: u64) -> Result<u64, ()> {
        poll_fn(|cx| {
            if self.is_lost.get() {
                return Poll::Ready(Err(()));
            }
            if self.landed.get() >= txid {
                return Poll::Ready(Ok(self.landed.get()));
            }
            self.waker.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await
    }
}

impl Rig {
    fn new() -> Self {
        let (pool, gate, bucket) = (LocalPool::new(), Gate::new(0), Rc::<Bucket>::default());
        let (kept, lands) = (Rc::clone(&gate), Rc::clone(&bucket));
        let keeper = async move { keep(kept, |txid| Rc::clone(&lands).landed(txid)).await };
        pool.spawner().spawn_local(keeper).unwrap();
        Self { pool, gate, bucket }
    }

    /// An event that is answered at once and whose commits lead to `txid`; its answer, outside.
    fn event(&mut self, txid: u64) -> AnswerReceiver {
        let (event, outside) = HttpEvent::new(http::Request::new(RequestBody::empty()));
        let (event, answer) = ActorEvent::from(event).intercept();
        let gate = Rc::clone(&self.gate);
        self.pool.run_until(async move {
            gate.in_event.set(true);
            let answered = async { event.refuse(&Refusal::Stopping) };
            run(&gate, answered, answer, async || Ok(0)).await;
            gate.event_ended(txid);
        });
        outside
    }

    fn land(&mut self, txid: u64) {
        self.bucket.landed.set(txid);
        wake(&self.bucket.waker);
        self.pool.run_until_stalled();
    }
}

fn has_left(answer: &mut AnswerReceiver) -> bool {
    Pin::new(answer).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn an_answer_leaves_once_what_it_could_have_seen_has_landed_and_later_events_run_meanwhile() {
    let mut rig = Rig::new();
    let (mut first, mut second) = (rig.event(1), rig.event(2));
    // It wrote nothing, and may have read what the second wrote.
    let mut third = rig.event(2);
    assert!(!has_left(&mut first));
    rig.land(1);
    assert_eq!([has_left(&mut first), has_left(&mut second), has_left(&mut third)], [true, false, false]);
    rig.land(2);
    assert_eq!([has_left(&mut second), has_left(&mut third)], [true, true]);
    assert!(has_left(&mut rig.event(2)));
}

#[test]
fn what_an_event_says_before_its_end_waits_for_what_it_committed_before() {
    for (commits, landed, leaves) in [
        (vec![Ok(0)], 0, Some(true)),
        (vec![Ok(3)], 0, None),
        (vec![Ok(3)], 3, Some(true)),
        (vec![Err(Stuck::Busy), Ok(3)], 3, Some(true)),
        // It would wait for the end of its own transaction.
        (vec![Err(Stuck::Refused)], 9, Some(false)),
    ] {
        let mut rig = Rig::new();
        rig.land(landed);
        rig.bucket.commits.replace(commits);
        let (gate, bucket, said) = (Rc::clone(&rig.gate), Rc::clone(&rig.bucket), Rc::new(Cell::new(None)));
        let saying = Rc::clone(&said);
        let event = async move {
            gate.in_event.set(true);
            let knock = gate.door().knock();
            let mut knock = pin!(knock);
            let mut turns = 0..9;
            let guest = poll_fn(|cx| {
                // As the end of a statement does.
                if turns.next().is_some() {
                    cx.waker().wake_by_ref();
                }
                knock.as_mut().poll(cx)
            });
            let hand_over = async || match bucket.commits.borrow_mut() {
                commits if commits.is_empty() => Ok(0),
                mut commits => commits.remove(0),
            };
            let allowed = run(&gate, guest, None, hand_over).await;
            saying.set(Some(allowed));
        };
        rig.pool.spawner().spawn_local(event).unwrap();
        rig.pool.run_until_stalled();
        assert_eq!(said.get(), leaves);
    }
}

#[test]
fn what_waits_when_the_actor_is_lost_is_failed_and_when_it_is_settled_leaves() {
    let mut rig = Rig::new();
    let (mut answer, knock) = (rig.event(1), rig.gate.door().knock());
    rig.bucket.is_lost.set(true);
    rig.land(0);
    let outcome = rig.pool.run_until(&mut answer);
    assert!(matches!(outcome, Err(Unanswered::Failed(Failure::Lost))), "{outcome:?}");
    assert!(!rig.pool.run_until(knock));

    let mut rig = Rig::new();
    let (mut answer, knock) = (rig.event(1), rig.gate.door().knock());
    rig.gate.close(true);
    assert!(has_left(&mut answer) && rig.pool.run_until(knock));
    // The client of a long response may come back later still.
    assert!(rig.pool.run_until(rig.gate.door().knock()));
}

#[test]
fn messages_and_answers_keep_their_order() {
    let mut rig = Rig::new();
    let said = Rc::new(RefCell::new(Vec::new()));
    for txid in 1..=3 {
        let say = Rc::clone(&said);
        rig.gate.in_event.set(true);
        rig.gate.hold(Held::Message(1, Box::new(move || say.borrow_mut().push(txid))));
        rig.gate.event_ended(txid);
    }
    rig.land(2);
    assert_eq!(*said.borrow(), [1, 2]);
    rig.land(3);
    assert_eq!((said.take(), rig.gate.bytes.get()), (vec![1, 2, 3], 0));
}

#[test]
fn the_next_event_waits_while_the_gate_is_full() {
    let mut rig = Rig::new();
    rig.gate.in_event.set(true);
    rig.gate.hold(Held::Message(GATE_HELD_BYTES_MAX, Box::new(|| {})));
    rig.gate.event_ended(1);
    let room = |gate: &Gate| gate.poll_room(&Context::from_waker(Waker::noop()));
    assert!(room(&rig.gate).is_pending());
    rig.land(1);
    assert!(room(&rig.gate).is_ready());
}
