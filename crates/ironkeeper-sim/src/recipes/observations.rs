//! The state that programs and checkers share: operations and claimed holds of programs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::claimed_holds::ClaimedHolds;
use super::workloads::Records;
use crate::random::mix;

/// Observations of all programs.
#[derive(Debug)]
pub struct Observations {
    began: Instant,
    verbose: bool,
    pub claimed_holds: ClaimedHolds,
    pub records: Records,
    /// The number of completed operations.
    pub operations: u64,
    /// The number of sessions that programs have lost.
    pub losses: u64,
    /// The last trace line of each program.
    pub last_lines: Vec<String>,
    /// A hash of all trace lines and of all bytes that clients sent.
    pub trace: u64,
    failure: Option<String>,
}

/// A shared [`Observations`].
#[derive(Clone, Debug)]
pub struct SharedObservations(Arc<Mutex<Observations>>);

impl SharedObservations {
    pub fn new(programs: usize, verbose: bool) -> SharedObservations {
        SharedObservations(Arc::new(Mutex::new(Observations {
            began: Instant::now(),
            verbose,
            claimed_holds: ClaimedHolds::default(),
            records: Records::default(),
            operations: 0,
            losses: 0,
            last_lines: vec![String::new(); programs],
            trace: 0,
            failure: None,
        })))
    }

    /// Locks the observations. A program must not await while it holds the guard.
    pub fn open(&self) -> MutexGuard<'_, Observations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observations {
    pub fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    /// Records a trace line of a program.
    pub fn log(&mut self, program: usize, what: String) {
        let now_us = self.now_us();
        if self.verbose {
            println!("{:>10.3}  program {program} {what}", now_us as f64 / 1e3);
        }
        self.trace = mix(self.trace ^ now_us ^ ((program as u64) << 56));
        for byte in what.bytes() {
            self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.last_lines[program] = what;
    }

    /// Adds bytes that a client sent to the trace.
    pub fn note_bytes(&mut self, line: u64, bytes: &[u8]) {
        let mut trace = mix(self.trace ^ line);
        for byte in bytes {
            trace = (trace ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.trace = trace;
    }

    /// Records a violation of a rule. Only the first one is kept.
    pub fn fail(&mut self, outcome: Result<(), String>) {
        if let Err(what) = outcome
            && self.failure.is_none()
        {
            self.failure = Some(what);
        }
    }

    pub fn take_failure(&mut self) -> Option<String> {
        self.failure.take()
    }
}
