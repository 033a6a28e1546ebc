//! Entering a guest by one of its hooks.

use std::fmt;

use wasmkeep_actor::{AlarmError, Failure, InitError, TurnEnd};
use wasmtime::component::{ComponentExportIndex, ComponentNamedList, Lift, Lower};

use crate::{
    bindings::websockets::Acceptance,
    boundary::{TrapReport, guarded, trap},
    event::{AnswerSender, Mistake, SocketClose, SocketMessage, SocketOpen, Unanswered},
    instance::Instance,
    load::{
        AlarmParams, AlarmResults, CloseParams, HookExports, InitResults, MessageParams, OpenParams,
        OpenResults,
    },
    sockets::{check_acceptance, offered_protocols},
};

/// What refuses a socket of a class without `on-websocket-open`.
const NOT_IMPLEMENTED: u16 = 501;

/// How entering a hook ended.
enum Called<R> {
    Returned(R),
    /// The component does not have it.
    Absent,
    /// It trapped; the instance must not be entered again.
    Failed(Failure),
}

impl Instance {
    pub(crate) async fn on_init(&mut self) -> Result<(), InitError> {
        match self.hook::<(), InitResults>("on-init", |exports| exports.init, ()).await {
            Called::Absent | Called::Returned((Ok(()),)) => Ok(()),
            Called::Returned((Err(reason),)) => {
                self.complain("on-init failed", &reason);
                Err(InitError::Refused(reason))
            }
            Called::Failed(failure) => Err(InitError::Poisoned(failure)),
        }
    }

    pub(crate) async fn on_alarm(&mut self, due_ms: u64, attempt: u32) -> Result<(), AlarmError> {
        let params = (due_ms, attempt);
        match self.hook::<AlarmParams, AlarmResults>("on-alarm", |exports| exports.alarm, params).await {
            Called::Returned((Ok(()),)) => Ok(()),
            Called::Returned((Err(reason),)) => {
                self.complain("on-alarm failed", &reason);
                Err(AlarmError::Refused(reason))
            }
            Called::Absent => Err(AlarmError::Absent),
            Called::Failed(failure) => Err(AlarmError::Poisoned(failure)),
        }
    }

    /// A socket that is let in is the actor's before anything else happens to it.
    pub(crate) async fn on_socket_open(&mut self, event: SocketOpen) -> TurnEnd {
        let SocketOpen { socket, path_with_query, headers, answer } = event;
        let offered = offered_protocols(&headers);
        let params = (socket, path_with_query, headers);
        let called = self
            .hook::<OpenParams, OpenResults>("on-websocket-open", |exports| exports.websocket_open, params)
            .await;
        let state = self.store.data();
        let let_in = |acceptance: Acceptance| {
            if let Err(reason) = check_acceptance(&acceptance, &offered) {
                state.log.failure("on-websocket-open", &reason);
                return Err(Unanswered::Mistake(Mistake::Acceptance(reason)));
            }
            let Acceptance { tags, attachment, protocol } = acceptance;
            if let Some(sockets) = &state.sockets {
                sockets.open(socket, tags, attachment);
            }
            Ok(Ok(protocol))
        };
        let of = |(result,): OpenResults| result.map_or_else(|status| Ok(Err(status)), let_in);
        answered(&answer, called, of, Ok(Err(NOT_IMPLEMENTED)))
    }

    pub(crate) async fn on_socket_message(&mut self, event: SocketMessage) -> TurnEnd {
        let SocketMessage { socket, message, answer } = event;
        let called = self
            .hook::<MessageParams, ()>(
                "on-websocket-message",
                |exports| exports.websocket_message,
                (socket, message),
            )
            .await;
        answered(&answer, called, Ok, Ok(()))
    }

    pub(crate) async fn on_socket_close(&mut self, event: SocketClose) -> TurnEnd {
        let SocketClose { socket, code, reason, answer } = event;
        let called = self
            .hook::<CloseParams, ()>(
                "on-websocket-close",
                |exports| exports.websocket_close,
                (socket, code, reason),
            )
            .await;
        answered(&answer, called, Ok, Ok(()))
    }

    /// Enters the hook that `which` finds. Its types were checked when the component was loaded.
    async fn hook<P, R>(
        &mut self,
        name: &'static str,
        which: impl Fn(&HookExports) -> Option<ComponentExportIndex>,
        params: P,
    ) -> Called<R>
    where
        P: ComponentNamedList + Lower,
        R: ComponentNamedList + Lift + Send + Sync + 'static,
    {
        let Some(export) = which(&self.loaded.exports) else { return Called::Absent };
        if let Err(failure) = self.enter() {
            return Called::Failed(failure);
        }
        let hook = match self.instance.get_typed_func::<P, R>(&mut self.store, export) {
            Ok(hook) => hook,
            Err(error) => return Called::Failed(Failure::Bug(format!("{error:#}"))),
        };
        let ended = guarded(&self.timers, hook.call_async(&mut self.store, params)).await;
        self.leave();
        match ended {
            Ok(Ok(results)) => {
                self.sound = true;
                Called::Returned(results)
            }
            Ok(Err(error)) => {
                self.complain(&format!("{name} trapped"), &TrapReport(&error));
                Called::Failed(trap(&error))
            }
            Err(failure) => Called::Failed(failure),
        }
    }

    fn complain(&self, what: &str, why: &dyn fmt::Display) {
        self.store.data().log.failure(what, why);
    }
}

/// Answers an event by how its hook ended.
fn answered<R, T>(
    answer: &AnswerSender<T>,
    called: Called<R>,
    of: impl FnOnce(R) -> Result<T, Unanswered>,
    absent: Result<T, Unanswered>,
) -> TurnEnd {
    match called {
        Called::Returned(results) => answer.send(of(results)),
        Called::Absent => answer.send(absent),
        Called::Failed(failure) => {
            answer.send(Err(Unanswered::Failed(failure.clone())));
            return TurnEnd::Poisoned(failure);
        }
    };
    TurnEnd::Ready
}
