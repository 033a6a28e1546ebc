//! One event from the guest's first instruction to the end of its response: polls the guest and, between its
//! polls, moves what it wrote towards the client.
//!
//! Both run in one task. The guest makes progress only while it is polled, so looking at its response right
//! after each poll sees everything in time and needs no wake-ups of its own.

use std::{
    future::{Future, poll_fn},
    mem,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode, header, response::Parts};
use http_body::Body;
use tokio::{runtime::Handle, sync::oneshot};
use wasmkeep_actor::{Failure, TurnEnd};
use wasmtime_wasi_http::p2::{bindings::http::types::ErrorCode, body::HyperOutgoingBody};

use crate::{
    boundary::{poll_guarded, trap},
    event::{AnswerSender, BodyWriter, Cut, Mistake, ResponseBody, Unanswered, response_pipe},
    headers,
};

/// A body up to this size, in bytes, that the guest writes without waiting for anything else is handed over
/// whole: the connection then writes head and body at once. Larger ones stream.
const WHOLE_BYTES_MAX: usize = 64 << 10;

/// Times in a row that a guest is polled because its chunks were taken, before the executor has its turn: a
/// body that nobody holds back (one that is not sent, say) must not hold the core.
const POLLS_MAX: usize = 16;

/// Slices in a row that a guest may spend between its response's head and the end of its body before the head
/// goes out alone. A slice that ends just there, as one in a hundred events has, must not cost an ordinary
/// answer its single write; a guest that computes on must not hold the head back for long.
const SLICES_HELD_MAX: u32 = 4;

/// Runs the guest's handler and answers the event; how that left the instance. `on_trap` sees the whole error of a trap.
pub(crate) async fn run(
    timers: &Handle,
    call: impl Future<Output = wasmtime::Result<()>>,
    slice_ended: &SliceEnded,
    mut reply: Reply,
    on_trap: impl Fn(&wasmtime::Error),
) -> TurnEnd {
    let mut call = pin!(call);
    poll_fn(|cx| {
        for _ in 0..POLLS_MAX {
            match poll_guarded(timers, call.as_mut(), cx) {
                Poll::Pending => {
                    let phase = if slice_ended.take() { Phase::Preempted } else { Phase::Waiting };
                    // Chunks taken make room for the guest's next write: it can go on at once.
                    if !reply.advance(cx, phase) {
                        return Poll::Pending;
                    }
                }
                Poll::Ready(Ok(Ok(()))) => {
                    reply.advance(cx, Phase::Returned);
                    return Poll::Ready(if reply.is_missing { TurnEnd::Retired } else { TurnEnd::Ready });
                }
                Poll::Ready(Ok(Err(error))) => {
                    on_trap(&error);
                    let failure = trap(&error);
                    reply.advance(cx, Phase::Failed(&failure));
                    return Poll::Ready(TurnEnd::Poisoned(failure));
                }
                Poll::Ready(Err(failure)) => {
                    reply.advance(cx, Phase::Failed(&failure));
                    return Poll::Ready(TurnEnd::Poisoned(failure));
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// Where the guest's handler is.
#[derive(Clone, Copy)]
pub(crate) enum Phase<'a> {
    /// In a call of the host that is not done.
    Waiting,
    /// At the end of its time slice.
    Preempted,
    /// Nothing can be added to the response any more.
    Returned,
    Failed(&'a Failure),
}

impl Phase<'_> {
    fn is_running(self) -> bool {
        matches!(self, Self::Waiting | Self::Preempted)
    }
}

/// Tells that a guest returned to the host only because its slice had ended. Shared by the store's epoch
/// callback and the turn.
#[derive(Clone, Default)]
pub(crate) struct SliceEnded(Arc<AtomicBool>);

impl SliceEnded {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn take(&self) -> bool {
        // No other thread sees it: a plain look first keeps the common case free of a locked instruction.
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}

type Head = Result<http::Response<HyperOutgoingBody>, ErrorCode>;

/// The answer to an event while it comes about.
pub(crate) struct Reply {
    answer: AnswerSender,
    head_only: bool,
    /// The guest returned without a response.
    is_missing: bool,
    stage: Stage,
}

enum Stage {
    /// The guest has set no response.
    Head(oneshot::Receiver<Head>),
    /// The head is here and not sent: the whole body may follow at once.
    Gathering(Gathering),
    /// The head is on its way, the body follows.
    Streaming { body: HyperOutgoingBody, tally: Tally, writer: BodyWriter },
    /// A body that is not sent: of HEAD, 204 and 304.
    Discarding(HyperOutgoingBody),
    /// Answered to the end, or given up.
    Done,
}

struct Gathering {
    parts: Parts,
    body: HyperOutgoingBody,
    tally: Tally,
    chunks: Vec<Bytes>,
    slices_held: u32,
}

/// What became of a step.
enum Step {
    /// Look again at once.
    Again(Stage),
    /// Nothing to do until the guest or the client moves.
    Wait(Stage),
}

/// Bytes written against bytes promised.
struct Tally {
    promised: Option<u64>,
    written: u64,
}

impl Tally {
    /// Counts a chunk; false once the body is longer than promised.
    fn add(&mut self, chunk: &Bytes) -> bool {
        self.written += chunk.len() as u64;
        self.promised.is_none_or(|promised| self.written <= promised)
    }

    fn is_kept(&self) -> bool {
        self.promised.is_none_or(|promised| self.written == promised)
    }

    fn mistake(&self) -> Mistake {
        match self.promised {
            Some(promised) if promised != self.written => {
                Mistake::BodyLength { promised, written: self.written }
            }
            _ => Mistake::BodyUnfinished,
        }
    }

    fn cut(&self) -> Cut {
        if self.is_kept() { Cut::Unfinished } else { Cut::Length }
    }
}

/// What the guest's side of a body gives.
enum Read {
    Chunk(Bytes),
    End,
    /// The guest dropped it unfinished, or finished it short of its promise.
    Broken,
    Pending,
}

fn read(body: &mut HyperOutgoingBody, cx: &mut Context<'_>) -> Read {
    loop {
        match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Pending => return Read::Pending,
            Poll::Ready(None) => return Read::End,
            Poll::Ready(Some(Err(_))) => return Read::Broken,
            Poll::Ready(Some(Ok(frame))) => {
                // Trailers are not passed on: a server may drop them (RFC 9110 section 6.5.1).
                if let Ok(chunk) = frame.into_data() {
                    return Read::Chunk(chunk);
                }
            }
        }
    }
}

impl Reply {
    pub(crate) fn new(answer: AnswerSender, method: &Method, head: oneshot::Receiver<Head>) -> Self {
        Self { answer, head_only: method == Method::HEAD, is_missing: false, stage: Stage::Head(head) }
    }

    /// Moves on as far as it goes; with [`Phase::Returned`] and [`Phase::Failed`], to the end. Says whether it
    /// took anything from a running guest.
    pub(crate) fn advance(&mut self, cx: &mut Context<'_>, phase: Phase<'_>) -> bool {
        let mut took = false;
        loop {
            let step = match mem::replace(&mut self.stage, Stage::Done) {
                Stage::Head(head) => self.take_head(head, phase),
                Stage::Gathering(gathering) => self.gather(gathering, cx, phase, &mut took),
                Stage::Streaming { body, tally, writer } => {
                    Self::stream(body, tally, writer, cx, phase, &mut took)
                }
                Stage::Discarding(body) => Self::discard(body, cx, phase, &mut took),
                Stage::Done => Step::Wait(Stage::Done),
            };
            match step {
                Step::Again(stage) => self.stage = stage,
                Step::Wait(stage) => {
                    self.stage = stage;
                    return took;
                }
            }
        }
    }

    fn mistake(&self, mistake: Mistake) -> Step {
        self.answer.send(Err(Unanswered::Mistake(mistake)));
        Step::Wait(Stage::Done)
    }

    fn failed(&self, failure: &Failure) -> Step {
        self.answer.send(Err(Unanswered::Failed(failure.clone())));
        Step::Wait(Stage::Done)
    }

    fn take_head(&mut self, mut head: oneshot::Receiver<Head>, phase: Phase<'_>) -> Step {
        if let Phase::Failed(failure) = phase {
            return self.failed(failure);
        }
        match head.try_recv() {
            Ok(Ok(response)) => self.begin(response),
            Ok(Err(code)) => self.mistake(Mistake::ErrorCode(format!("{code:?}"))),
            Err(_) if phase.is_running() => Step::Wait(Stage::Head(head)),
            Err(_) => {
                self.is_missing = true;
                self.mistake(Mistake::NoResponse)
            }
        }
    }

    fn begin(&mut self, response: http::Response<HyperOutgoingBody>) -> Step {
        let (mut parts, body) = response.into_parts();
        let status = parts.status.as_u16();
        if !(200..600).contains(&status) {
            return self.mistake(Mistake::Status(status));
        }
        let Ok(promised) = headers::content_length(&parts.headers) else {
            return self.mistake(Mistake::ContentLength);
        };
        headers::strip(&mut parts.headers);
        if parts.status == StatusCode::NO_CONTENT {
            parts.headers.remove(header::CONTENT_LENGTH);
        }
        let bodiless = matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if bodiless || self.head_only {
            self.answer.send(Ok(http::Response::from_parts(parts, ResponseBody::empty())));
            return Step::Again(Stage::Discarding(body));
        }
        let tally = Tally { promised, written: 0 };
        Step::Again(Stage::Gathering(Gathering { parts, body, tally, chunks: Vec::new(), slices_held: 0 }))
    }

    fn gather(
        &mut self,
        mut gathering: Gathering,
        cx: &mut Context<'_>,
        phase: Phase<'_>,
        took: &mut bool,
    ) -> Step {
        if let Phase::Failed(failure) = phase {
            return self.failed(failure);
        }
        let took_before = mem::replace(took, false);
        loop {
            match read(&mut gathering.body, cx) {
                Read::Chunk(chunk) => {
                    *took = true;
                    if !gathering.tally.add(&chunk) {
                        return self.mistake(gathering.tally.mistake());
                    }
                    gathering.chunks.push(chunk);
                }
                Read::End if gathering.tally.is_kept() => {
                    let body = ResponseBody::full(join(gathering.chunks));
                    self.answer.send(Ok(http::Response::from_parts(gathering.parts, body)));
                    return Step::Wait(Stage::Done);
                }
                Read::End | Read::Broken => return self.mistake(gathering.tally.mistake()),
                Read::Pending => break,
            }
        }
        if matches!(phase, Phase::Returned) {
            return self.mistake(gathering.tally.mistake());
        }
        if *took && gathering.tally.written <= WHOLE_BYTES_MAX as u64 {
            return Step::Wait(Stage::Gathering(gathering));
        }
        *took |= took_before;
        if matches!(phase, Phase::Preempted) && gathering.slices_held < SLICES_HELD_MAX {
            gathering.slices_held += 1;
            return Step::Wait(Stage::Gathering(gathering));
        }
        self.start_streaming(gathering)
    }

    fn start_streaming(&mut self, gathering: Gathering) -> Step {
        let Gathering { parts, body, tally, chunks, .. } = gathering;
        let (writer, sent) = response_pipe(tally.promised);
        for chunk in chunks {
            writer.push(chunk);
        }
        self.answer.send(Ok(http::Response::from_parts(parts, sent)));
        Step::Again(Stage::Streaming { body, tally, writer })
    }

    fn stream(
        mut body: HyperOutgoingBody,
        mut tally: Tally,
        writer: BodyWriter,
        cx: &mut Context<'_>,
        phase: Phase<'_>,
        took: &mut bool,
    ) -> Step {
        const DONE: Step = Step::Wait(Stage::Done);
        if matches!(phase, Phase::Failed(_)) {
            writer.cut(Cut::Failed);
            return DONE;
        }
        loop {
            // What a guest that has returned left behind is bounded by its own buffer: no need to wait.
            if phase.is_running() {
                match writer.poll_room(cx) {
                    Poll::Pending => return Step::Wait(Stage::Streaming { body, tally, writer }),
                    // The client left: dropping `body` tells the guest at its next write.
                    Poll::Ready(Err(_)) => return DONE,
                    Poll::Ready(Ok(())) => {}
                }
            }
            match read(&mut body, cx) {
                Read::Chunk(chunk) => {
                    *took = true;
                    if !tally.add(&chunk) {
                        writer.cut(Cut::Length);
                        return DONE;
                    }
                    writer.push(chunk);
                }
                Read::End if tally.is_kept() => {
                    writer.finish();
                    return DONE;
                }
                Read::Pending if phase.is_running() => {
                    return Step::Wait(Stage::Streaming { body, tally, writer });
                }
                Read::End | Read::Broken | Read::Pending => {
                    writer.cut(tally.cut());
                    return DONE;
                }
            }
        }
    }

    fn discard(mut body: HyperOutgoingBody, cx: &mut Context<'_>, phase: Phase<'_>, took: &mut bool) -> Step {
        loop {
            match read(&mut body, cx) {
                Read::Chunk(_) => *took = true,
                Read::Pending if phase.is_running() => {
                    return Step::Wait(Stage::Discarding(body));
                }
                Read::Pending | Read::End | Read::Broken => return Step::Wait(Stage::Done),
            }
        }
    }
}

fn join(mut chunks: Vec<Bytes>) -> Bytes {
    if chunks.len() <= 1 {
        return chunks.pop().unwrap_or_default();
    }
    let mut whole = BytesMut::with_capacity(chunks.iter().map(Bytes::len).sum());
    for chunk in &chunks {
        whole.extend_from_slice(chunk);
    }
    whole.freeze()
}
