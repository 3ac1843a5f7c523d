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

/// The answer to a request that has already taken its place in line.
///
/// The request is on its way as soon as the method that made it returns; awaiting this only waits for
/// the answer. Dropping it means that the answer is of no interest: the request is carried out
/// nevertheless. Requests are carried out in the order they were made.
///
/// While the server still owes answers, requests may be put together before they leave: until one of
/// them is awaited or dropped, or the next answer is there.
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
    /// Refused before it was sent.
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
            // What was in there may be a watch, which takes the lock of the session when dropped.
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

/// What is known of a request besides its bytes.
#[derive(Debug, Default)]
pub(crate) struct RequestContext {
    /// As the user wrote it. Empty if the request has none.
    pub(crate) path: Box<str>,
    pub(crate) chroot: Chroot,
    /// Whether it changes anything.
    pub(crate) is_write: bool,
    /// The paths of the operations of a multi.
    pub(crate) operations: Vec<Box<str>>,
}

impl RequestContext {
    pub(crate) fn error(&self, kind: ErrorKind) -> Error {
        if self.path.is_empty() { Error::new(kind) } else { Error::at(kind, &self.path) }
    }

    /// An answer that cannot be read. It says nothing of whether the request was carried out.
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
                // The server carried it out; only the answer could not be taken in.
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

/// Turns the body of an answer into what the user gets. The watch is the one the request asked for.
pub(crate) type Decode<T> = fn(&RequestContext, Option<WatchEnd>, Answer<'_>) -> Result<T>;

/// An answer of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) err: i32,
    pub(crate) body: &'a [u8],
}

/// Where the answer is put, shared by the future and the line.
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
    /// The answer was taken, or nobody wants it any more.
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

    /// Puts the answer there and hands out who has to be woken.
    fn finish(&self, result: impl FnOnce(Option<WatchEnd>) -> Result<T>) -> Option<Waker> {
        let mut state = lock(&self.state);
        let State::Waiting { waker, watch } = &mut *state else { return None };
        let (waker, watch) = (waker.take(), watch.take());
        // Under the lock: a future that is being dropped has to find the watch in here or there.
        *state = State::Done(result(watch));
        waker
    }
}

/// What the session machine keeps for each request.
pub(crate) trait Completion: Send + Sync {
    /// The answer is there; whoever waits for it is left to be woken. `readable` becomes `false` if the
    /// answer could not be read.
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

/// For answers that carry nothing but their success.
pub(crate) fn nothing(
    context: &RequestContext,
    _watch: Option<WatchEnd>,
    answer: Answer<'_>,
) -> Result<()> {
    answer.body_of(context).map(|_| ())
}

impl<'a> Answer<'a> {
    /// The body, or the error that stands in its place.
    pub(crate) fn body_of(self, context: &RequestContext) -> Result<&'a [u8]> {
        match self.err {
            0 => Ok(self.body),
            code => {
                let error = context.error(ErrorKind::from_code(code));
                // The server itself does not know what became of it.
                Err(if context.is_write && leaves_open(code) {
                    error.maybe_happened()
                } else {
                    error
                })
            }
        }
    }
}

/// Whether an error of a server says nothing about the outcome.
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
