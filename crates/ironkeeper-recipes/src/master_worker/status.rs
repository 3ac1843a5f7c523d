//! The status of a task, and its encoding: one line of text, followed by arbitrary bytes.

use bytes::Bytes;

use crate::error::{RecipeError, Result};

/// The status of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// No worker has the task yet.
    Waiting,
    /// A worker has the task.
    Assigned {
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The node of the worker.
        worker: String,
        /// The progress that the worker has reported last.
        progress: Bytes,
    },
    /// A worker has returned the task. It will be assigned again.
    Returned {
        /// The attempt that was returned.
        attempt: u32,
        /// The reason that the worker gave.
        reason: Bytes,
    },
    /// The task is finished.
    Finished(Outcome),
}

/// The result of a finished task.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The task was done.
    Done {
        /// The result that the worker wrote.
        result: Bytes,
        /// The number of attempts.
        attempts: u32,
        /// The node of the worker that finished the task.
        worker: String,
    },
    /// The master gave up, after the maximum number of attempts.
    Failed {
        /// The payload of the last attempt: the reason for its return, or its progress.
        reason: Bytes,
        /// The number of attempts.
        attempts: u32,
    },
    /// The task was cancelled.
    Cancelled,
}

/// A decoded status node. `worker` is empty if there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) state: State,
    pub(super) attempt: u32,
    pub(super) worker: String,
    pub(super) said: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Assigned,
    Returned,
    Done,
    Failed,
    Cancelled,
}

const STATES: [(State, &str); 5] = [
    (State::Assigned, "assigned"),
    (State::Returned, "returned"),
    (State::Done, "done"),
    (State::Failed, "failed"),
    (State::Cancelled, "cancelled"),
];

impl Record {
    pub(super) fn new(state: State, attempt: u32, worker: &str, said: &[u8]) -> Record {
        let said = Bytes::copy_from_slice(said);
        Record { state, attempt, worker: worker.to_owned(), said }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let state = STATES.iter().find(|(state, _)| *state == self.state);
        let (_, state) = state.expect("all states have a name");
        let line = format!("{state} {} {}\n", self.attempt, self.worker);
        [line.as_bytes(), &self.said].concat()
    }

    pub(super) fn decode(path: &str, data: &Bytes) -> Result<Record> {
        let parse = || {
            let end = data.iter().position(|byte| *byte == b'\n')?;
            let mut words = std::str::from_utf8(&data[..end]).ok()?.split(' ');
            let (state, attempt, worker) = (words.next()?, words.next()?, words.next()?);
            let (state, _) = STATES.iter().find(|(_, name)| *name == state)?;
            let said = data.slice(end + 1..);
            Some(Record {
                state: *state,
                attempt: attempt.parse().ok()?,
                worker: worker.to_owned(),
                said,
            })
        };
        parse().ok_or_else(|| RecipeError::Malformed {
            path: path.to_owned(),
            why: "no status of a task".to_owned(),
        })
    }

    pub(super) fn status(self) -> Status {
        let Record { state, attempt, worker, said } = self;
        match state {
            State::Assigned => Status::Assigned { attempt, worker, progress: said },
            State::Returned => Status::Returned { attempt, reason: said },
            State::Done => {
                Status::Finished(Outcome::Done { result: said, attempts: attempt, worker })
            }
            State::Failed => Status::Finished(Outcome::Failed { reason: said, attempts: attempt }),
            State::Cancelled => Status::Finished(Outcome::Cancelled),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_people_can_read_it() {
        for (state, name) in STATES {
            let record = Record::new(state, 3, "worker-1", b"two\nlines \xff");
            let data = Bytes::from(record.encode());
            assert!(data.starts_with(format!("{name} 3 worker-1\n").as_bytes()));
            assert_eq!(Record::decode("/s", &data).unwrap(), record);
        }
    }

    #[test]
    fn anything_else_is_malformed() {
        for text in ["", "done", "done 1 w", "done x w\n", "lost 1 w\n", "done 1\n", "done -1 w\n"]
        {
            let error = Record::decode("/s", &Bytes::from(text)).unwrap_err();
            assert!(error.to_string().starts_with("/s: "), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = Record::decode("/s", &Bytes::from(bytes));
        }
    }
}
