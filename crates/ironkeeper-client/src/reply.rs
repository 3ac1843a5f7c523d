//! The future of a request.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use ironkeeper_proto::{DecodeError, ErrorCode};

use crate::chroot::Chroot;
use crate::error::{Error, ErrorKind, Result};
use crate::lock;
use crate::session::machine::Failure;
use crate::shared::Shared;
use crate::watch::WatchEnd;

/// The reply to a request that is already queued.
///
/// The method that returns a `Reply` has queued the request; awaiting the `Reply` only waits for
/// the server. Dropping it discards the reply, and the request is executed nevertheless. The server
/// executes requests in the order in which they were made.
///
/// While a reply of the server is pending, the client may keep further requests in its buffer and
/// send them together: until one of them is awaited or dropped, or the next reply arrives.
///
/// ```
/// use ironkeeper_client::{Client, CreateMode, Version};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     // Three requests in one packet.
///     let created = client.create("/a", "one", CreateMode::Persistent);
///     let set = client.set("/a", "two", Version::Any);
///     let read = client.get("/a");
///     assert_eq!(read.await?.data, "two");
///     assert_eq!(set.await?.version, 1);
///     created.await?;
///     Ok(())
/// }
/// ```
#[must_use = "the request is carried out, but nobody looks at the answer"]
pub struct Reply<T> {
    inner: Inner<T>,
}

enum Inner<T> {
    Waiting(Arc<Slot<T>>, Arc<Shared>),
    /// Rejected by the client before it was sent.
    Refused(Option<Error>),
}

// Nothing in here is ever pinned.
impl<T> Unpin for Reply<T> {}

impl<T> Reply<T> {
    pub(crate) fn waiting(slot: Arc<Slot<T>>, shared: Arc<Shared>) -> Reply<T> {
        Reply { inner: Inner::Waiting(slot, shared) }
    }

    pub(crate) fn refused(error: Error) -> Reply<T> {
        Reply { inner: Inner::Refused(Some(error)) }
    }
}

impl<T> Future for Reply<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        match &mut self.get_mut().inner {
            Inner::Refused(error) => {
                Poll::Ready(Err(error.take().expect("a finished future is not polled again")))
            }
            Inner::Waiting(slot, shared) => {
                let answer = slot.poll(cx);
                if answer.is_pending() {
                    shared.uncork();
                }
                answer
            }
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Inner::Waiting(slot, shared) = &self.inner {
            // The state may contain a watch, whose drop locks the session.
            let unwanted = std::mem::replace(&mut *lock(&slot.state), State::Over);
            if matches!(unwanted, State::Waiting { .. }) {
                shared.uncork_later();
            }
            drop(unwanted);
        }
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.inner {
            Inner::Waiting(slot, _) => f.debug_tuple("Reply").field(&slot.context.path).finish(),
            Inner::Refused(error) => f.debug_tuple("Reply").field(error).finish(),
        }
    }
}

/// The properties of a request that are needed when its reply arrives.
#[derive(Debug, Default)]
pub(crate) struct RequestContext {
    /// As the user gave it. Empty if the request has no path.
    pub(crate) path: Box<str>,
    pub(crate) chroot: Chroot,
    /// Whether the request is a write.
    pub(crate) is_write: bool,
    /// The paths of the operations of a multi.
    pub(crate) operations: Vec<Box<str>>,
}

impl RequestContext {
    pub(crate) fn error(&self, kind: ErrorKind) -> Error {
        if self.path.is_empty() { Error::new(kind) } else { Error::at(kind, &self.path) }
    }

    /// Returns the error for a reply that cannot be decoded. The outcome of a write is then
    /// unknown.
    pub(crate) fn unreadable(&self, why: impl Into<Box<str>>) -> Error {
        let error = self.error(ErrorKind::MalformedReply).with_detail(why);
        if self.is_write { error.maybe_happened() } else { error }
    }

    pub(crate) fn failure(&self, failure: Failure) -> Error {
        let (kind, sent) = match failure {
            Failure::ConnectionLoss { sent } => (ErrorKind::ConnectionLoss, sent),
            Failure::SessionExpired { sent } => (ErrorKind::SessionExpired, sent),
            Failure::Closed { sent } => (ErrorKind::Closed, sent),
            Failure::AuthFailed { sent } => (ErrorKind::AuthFailed, sent),
            Failure::Overloaded => (ErrorKind::Overloaded, false),
            Failure::ReplyTooLarge { len } => {
                let error =
                    self.error(ErrorKind::ReplyTooLarge).with_detail(format!("{len} bytes"));
                // The server has executed the request; only the reply was not accepted.
                return if self.is_write { error.maybe_happened() } else { error };
            }
            Failure::RequestTooLarge { len } => {
                return self.error(ErrorKind::RequestTooLarge).with_detail(format!("{len} bytes"));
            }
        };
        let error = self.error(kind);
        if sent && self.is_write { error.maybe_happened() } else { error }
    }
}

/// Decodes the body of a reply into the user's result. The watch is the one that the request set.
pub(crate) type Decode<T> = fn(&RequestContext, Option<WatchEnd>, Answer<'_>) -> Result<T>;

/// A reply of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) err: i32,
    pub(crate) body: &'a [u8],
}

/// The place of the result, shared by the future and the queue of pending requests.
pub(crate) struct Slot<T> {
    state: Mutex<State<T>>,
    context: RequestContext,
    decode: Decode<T>,
}

enum State<T> {
    Waiting {
        waker: Option<Waker>,
        watch: Option<WatchEnd>,
    },
    Done(Result<T>),
    /// The result was taken, or the future was dropped.
    Over,
}

impl<T> Slot<T> {
    pub(crate) fn new(
        context: RequestContext,
        watch: Option<WatchEnd>,
        decode: Decode<T>,
    ) -> Arc<Slot<T>> {
        let state = Mutex::new(State::Waiting { waker: None, watch });
        Arc::new(Slot { state, context, decode })
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let mut state = lock(&self.state);
        if let State::Waiting { waker, .. } = &mut *state {
            match waker {
                Some(known) if known.will_wake(cx.waker()) => {}
                _ => *waker = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, State::Over) {
            State::Done(result) => Poll::Ready(result),
            _ => panic!("a finished future is not polled again"),
        }
    }

    /// Stores the result and returns the waker of the waiting task.
    fn finish(&self, result: impl FnOnce(Option<WatchEnd>) -> Result<T>) -> Option<Waker> {
        let mut state = lock(&self.state);
        let State::Waiting { waker, watch } = &mut *state else { return None };
        let (waker, watch) = (waker.take(), watch.take());
        // Under the lock: a future that is dropped concurrently has to find the watch in one of the
        // two states.
        *state = State::Done(result(watch));
        waker
    }
}

/// The part of a request that the session machine stores.
pub(crate) trait Completion: Send + Sync {
    /// Stores the reply and returns the waker of the waiting task, for the caller to wake. Sets
    /// `readable` to `false` if the reply cannot be decoded.
    fn answered(&self, answer: Answer<'_>, readable: &mut bool) -> Option<Waker>;
    fn failed(&self, failure: Failure);
}

impl<T: Send> Completion for Slot<T> {
    fn answered(&self, answer: Answer<'_>, readable: &mut bool) -> Option<Waker> {
        self.finish(|watch| {
            let result = (self.decode)(&self.context, watch, answer);
            *readable &=
                !matches!(&result, Err(error) if error.kind() == ErrorKind::MalformedReply);
            result
        })
    }

    fn failed(&self, failure: Failure) {
        let mut unwanted = None;
        let waker = self.finish(|watch| {
            unwanted = watch;
            Err(self.context.failure(failure))
        });
        if let Some(waker) = waker {
            waker.wake();
        }
        drop(unwanted);
    }
}

/// Decodes a reply that has no body.
pub(crate) fn nothing(
    context: &RequestContext,
    _watch: Option<WatchEnd>,
    answer: Answer<'_>,
) -> Result<()> {
    answer.body_of(context).map(|_| ())
}

impl<'a> Answer<'a> {
    /// Returns the body, or the error of the reply.
    pub(crate) fn body_of(self, context: &RequestContext) -> Result<&'a [u8]> {
        match self.err {
            0 => Ok(self.body),
            code => {
                let error = context.error(ErrorKind::from_code(code));
                // The server does not know whether the write was applied.
                Err(if context.is_write && leaves_open(code) {
                    error.maybe_happened()
                } else {
                    error
                })
            }
        }
    }
}

/// Returns whether this error code of a server leaves the outcome of a write unknown.
fn leaves_open(code: i32) -> bool {
    [
        ErrorCode::SystemError,
        ErrorCode::ConnectionLoss,
        ErrorCode::OperationTimeout,
        ErrorCode::RequestTimeout,
    ]
    .iter()
    .any(|known| known.code() == code)
}

pub(crate) fn malformed(context: &RequestContext) -> impl Fn(DecodeError) -> Error {
    |why| context.unreadable(why.to_string())
}
