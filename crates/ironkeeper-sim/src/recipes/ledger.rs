//! The state that programs and checkers share: operations and claimed holds of programs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::holdings::Holdings;
use super::plays::Records;
use crate::random::mix;

/// Observations of all programs.
#[derive(Debug)]
pub struct Ledger {
    began: Instant,
    verbose: bool,
    pub holdings: Holdings,
    pub records: Records,
    /// The number of completed operations.
    pub deeds: u64,
    /// The number of sessions that programs have lost.
    pub losses: u64,
    /// The last trace line of each program.
    pub last_words: Vec<String>,
    /// A hash of all trace lines and of all bytes that clients sent.
    pub trace: u64,
    failure: Option<String>,
}

/// A shared [`Ledger`].
#[derive(Clone, Debug)]
pub struct SharedLedger(Arc<Mutex<Ledger>>);

impl SharedLedger {
    pub fn new(programs: usize, verbose: bool) -> SharedLedger {
        SharedLedger(Arc::new(Mutex::new(Ledger {
            began: Instant::now(),
            verbose,
            holdings: Holdings::default(),
            records: Records::default(),
            deeds: 0,
            losses: 0,
            last_words: vec![String::new(); programs],
            trace: 0,
            failure: None,
        })))
    }

    /// Locks the observations. A program must not await while it holds the guard.
    pub fn open(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    pub fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    /// Records a trace line of a program.
    pub fn say(&mut self, program: usize, what: String) {
        let now_us = self.now_us();
        if self.verbose {
            println!("{:>10.3}  program {program} {what}", now_us as f64 / 1e3);
        }
        self.trace = mix(self.trace ^ now_us ^ ((program as u64) << 56));
        for byte in what.bytes() {
            self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.last_words[program] = what;
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
