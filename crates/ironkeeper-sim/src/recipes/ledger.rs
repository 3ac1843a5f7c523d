//! What programs did and believe: the part of the world that programs and checkers share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::holdings::Holdings;
use super::plays::Records;
use crate::random::mix;

/// See the head of this file.
#[derive(Debug)]
pub struct Ledger {
    began: Instant,
    verbose: bool,
    pub holdings: Holdings,
    pub records: Records,
    /// Things that programs have brought to an end.
    pub deeds: u64,
    /// Sessions that programs have lost.
    pub losses: u64,
    /// What each program has said last.
    pub last_words: Vec<String>,
    /// Everything that was said, in one number.
    pub trace: u64,
    failure: Option<String>,
}

/// A ledger in many hands.
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

    /// Nothing is awaited while it is open.
    pub fn open(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    pub fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    /// A program tells what it does.
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

    /// Bytes have left a client.
    pub fn note_bytes(&mut self, line: u64, bytes: &[u8]) {
        let mut trace = mix(self.trace ^ line);
        for byte in bytes {
            trace = (trace ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.trace = trace;
    }

    /// Notes that a rule was broken. The first one counts.
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
