use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use bytes::Bytes;
use http_body::{Body, Frame};

use super::*;

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Wakes {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn request() -> http::Request<RequestBody> {
    http::Request::new(RequestBody::empty())
}

fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

fn chunk(body: &mut (impl Body<Data = Bytes> + Unpin), waker: &Waker) -> Poll<Option<Result<Bytes, ()>>> {
    Pin::new(body)
        .poll_frame(&mut Context::from_waker(waker))
        .map(|next| next.map(|frame| frame.map(|frame| frame.into_data().expect("data")).map_err(drop)))
}

fn assert_send<T: Send>(value: T) -> T {
    value
}

#[test]
fn both_ends_of_an_event_may_cross_threads() {
    let (event, answer) = assert_send(HttpEvent::new(request()));
    let event = ActorEvent::from(event);
    assert_send(event.ticket());
    assert_send(ResponseBody::empty());
    drop((event, answer));
}

#[test]
fn the_first_answer_wins() {
    let (event, mut answer) = HttpEvent::new(request());
    let event = ActorEvent::from(event);
    let ticket = event.ticket();
    let refusal = Refusal::MailboxFull(3);
    event.refuse(&refusal);
    ActorEvent::fail(ticket, &Failure::Trap("late".into()));
    match poll(&mut answer, Waker::noop()) {
        Poll::Ready(Err(Unanswered::Refused(got))) => assert_eq!(got, refusal),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_event_nobody_answers_tells_its_receiver_so() {
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let (event, mut answer) = HttpEvent::new(request());
    let event = ActorEvent::from(event);
    let ticket = event.ticket();
    assert!(poll(&mut answer, &waker).is_pending());
    drop(event);
    assert!(poll(&mut answer, &waker).is_pending());
    drop(ticket);
    assert_eq!(wakes.count(), 1);
    assert!(matches!(poll(&mut answer, &waker), Poll::Ready(Err(Unanswered::Dropped))));
}

// case H6
#[test]
fn a_dropped_receiver_abandons_the_event() {
    let (event, answer) = HttpEvent::new(request());
    let sender = event.answer.clone();
    let event = ActorEvent::from(event);
    assert!(!event.is_abandoned());
    drop(answer);
    assert!(event.is_abandoned());
    assert!(!sender.send(Ok(http::Response::new(ResponseBody::empty()))));
}

#[test]
fn a_streamed_body_ends_well_only_if_its_writer_says_so() {
    let (writer, mut body) = response_pipe(None);
    writer.push(Bytes::from_static(b"a"));
    writer.finish();
    drop(writer);
    assert_eq!(chunk(&mut body, Waker::noop()), Poll::Ready(Some(Ok(Bytes::from_static(b"a")))));
    assert_eq!(chunk(&mut body, Waker::noop()), Poll::Ready(None));

    let (writer, mut body) = response_pipe(None);
    drop(writer);
    assert_eq!(chunk(&mut body, Waker::noop()), Poll::Ready(Some(Err(()))));
}

#[test]
fn a_streamed_body_holds_its_writer_back_until_it_is_read() {
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let cx = Context::from_waker(&waker);
    let (writer, mut body) = response_pipe(None);
    while writer.poll_room(&cx).is_ready() {
        writer.push(Bytes::from(vec![0; 4096]));
    }
    assert_eq!(wakes.count(), 0);
    assert!(chunk(&mut body, Waker::noop()).is_ready());
    assert_eq!(wakes.count(), 1);
    assert_eq!(writer.poll_room(&cx), Poll::Ready(Ok(())));
    writer.push(Bytes::from(vec![0; 4096]));
    assert!(writer.poll_room(&cx).is_pending());
    drop(body);
    assert_eq!(wakes.count(), 2);
    assert_eq!(writer.poll_room(&cx), Poll::Ready(Err(ReaderGone)));
}

#[test]
fn the_length_of_a_body_is_told_ahead() {
    assert_eq!(ResponseBody::full("abc").size_hint().exact(), Some(3));
    let (writer, mut body) = response_pipe(Some(5));
    assert_eq!(body.size_hint().exact(), Some(5));
    writer.push(Bytes::from_static(b"ab"));
    assert!(chunk(&mut body, Waker::noop()).is_ready());
    assert_eq!(body.size_hint().exact(), Some(3));
    assert_eq!(response_pipe(None).1.size_hint().exact(), None);
}

struct Endless;

impl Body for Endless {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
    }
}

#[test]
fn a_request_body_is_taken_back_when_its_event_ends() {
    let (mut body, revocation) = RequestBody::streamed(Endless).lend();
    assert_eq!(chunk(&mut body, Waker::noop()), Poll::Ready(Some(Ok(Bytes::from_static(b"x")))));
    drop(revocation);
    assert_eq!(chunk(&mut body, Waker::noop()), Poll::Ready(Some(Err(()))));
}

#[test]
fn an_intercepted_answer_is_given_when_it_is_let_go() {
    let intercepted = || {
        let (event, outside) = HttpEvent::new(request());
        let (event, answer) = ActorEvent::from(event).intercept();
        let mut answer = answer.expect("requests are answered to a client");
        assert!(poll(&mut answer, Waker::noop()).is_pending());
        event.refuse(&Refusal::Stopping);
        match poll(&mut answer, Waker::noop()) {
            Poll::Ready(held) => (held, outside),
            Poll::Pending => panic!("it was answered"),
        }
    };
    let (held, mut outside) = intercepted();
    assert!(poll(&mut outside, Waker::noop()).is_pending());
    held.release(|body| body);
    let given = poll(&mut outside, Waker::noop());
    assert!(matches!(given, Poll::Ready(Err(Unanswered::Refused(Refusal::Stopping)))), "{given:?}");
    let (held, mut outside) = intercepted();
    held.fail(&Failure::Lost);
    let given = poll(&mut outside, Waker::noop());
    assert!(matches!(given, Poll::Ready(Err(Unanswered::Failed(Failure::Lost)))), "{given:?}");
    let (held, mut outside) = intercepted();
    drop(held);
    assert!(matches!(poll(&mut outside, Waker::noop()), Poll::Ready(Err(Unanswered::Dropped))));
    // The node itself waits for these.
    let (event, _answer) = AlarmEvent::new();
    assert!(ActorEvent::Alarm(event).intercept().1.is_none());
}

#[test]
fn each_part_of_a_gated_body_waits_for_its_own_answer() {
    let (writer, body) = response_pipe(None);
    let asked = Arc::new(AtomicUsize::new(0));
    let (doors, mut open) = (Arc::clone(&asked), Vec::new());
    let (sender, knocks) = std::sync::mpsc::channel();
    let mut body = body.gated(move || {
        doors.fetch_add(1, Ordering::SeqCst);
        let (opener, door) = tokio::sync::oneshot::channel::<()>();
        sender.send(opener).expect("the test listens");
        Box::pin(async move { door.await.is_ok() })
    });
    assert!(chunk(&mut body, Waker::noop()).is_pending());
    assert_eq!(asked.load(Ordering::SeqCst), 0, "nothing was said yet");
    writer.push(Bytes::from_static(b"one"));
    writer.push(Bytes::from_static(b"two"));
    assert!(chunk(&mut body, Waker::noop()).is_pending());
    open.extend(knocks.try_iter());
    assert_eq!(open.len(), 1);
    open.remove(0).send(()).expect("it waits");
    assert_eq!(chunk(&mut body, Waker::noop()), Poll::Ready(Some(Ok(Bytes::from_static(b"one")))));
    assert!(chunk(&mut body, Waker::noop()).is_pending());
    // The actor was lost.
    drop(knocks.try_iter().next());
    assert_eq!(chunk(&mut body, Waker::noop()), Poll::Ready(Some(Err(()))));
}
