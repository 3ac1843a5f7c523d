//! The sender of a connection (`src/outbox_sender.rs`): the connection's task, the log thread that
//! sends events, a client that reads slowly, and the end of the connection.
//!
//! All tests of this folder use the sender; those in this file reach its rarer states. Each of the
//! following mistakes in `src/outbox_sender.rs` was planted by hand, and these tests found it:
//!
//! - `poll_notified` does not check `is_notified` again after it has stored the waker: the task
//!   waits although it was notified, which shuttle reports as a deadlock.
//! - A write is not counted in `writes`, or the task does not compare `writes` after `set_paused`:
//!   it waits for room that was made already, a deadlock.
//! - `send_events` does not check that `unsent` is empty: events are sent inside of a reply.
//! - `send_events` returns true although the stream did not accept all bytes, or although the task
//!   holds the lock: output is left, and no thread sends it.

use std::sync::Arc;
use std::task::{Context, Waker};

use ironkeeper_engine::EngineConfig;
use ironkeeper_engine::conn::OUTBOX_BYTES_SOFT;
use ironkeeper_engine::outbox_sender::OutboxSender;
use ironkeeper_proto::CreateMode;
use shuttle::sync::Mutex;
use shuttle::thread;

use crate::server::{Heard, Script, Server, check_order, converse};
use crate::stream::{Sink, Stream};
use crate::{check, check_part};

/// Returns the zxids of the events, in the order of arrival.
fn event_zxids(heard: &[Heard]) -> Vec<i64> {
    let zxid = |heard: &Heard| match heard {
        Heard::Event { zxid, .. } => Some(*zxid),
        Heard::Reply { .. } => None,
    };
    heard.iter().filter_map(zxid).collect()
}

#[test]
fn no_notification_is_lost() {
    check(|| {
        let stream = Arc::<Stream>::default();
        let sender = Arc::new(OutboxSender::new(Sink(Arc::clone(&stream))));
        let work = Arc::new(Mutex::new(0));
        let notifying: Vec<_> = (0..2)
            .map(|_| {
                let (sender, work) = (Arc::clone(&sender), Arc::clone(&work));
                thread::spawn(move || {
                    for _ in 0..3 {
                        *work.lock().unwrap() += 1;
                        sender.notify();
                    }
                })
            })
            .collect();
        let waker = Waker::from(Arc::clone(&stream));
        let mut done = 0;
        while done < 6 {
            if sender.poll_notified(&mut Context::from_waker(&waker)).is_pending() {
                stream.wait(false);
            }
            done += std::mem::take(&mut *work.lock().unwrap());
        }
        notifying.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn bytes_keep_their_order_however_few_the_stream_accepts() {
    for capacity in [1, 30, 100] {
        check_part(3, move || {
            let (server, mut clients) = Server::start(EngineConfig::default(), 2);
            let (reading, writing) = (clients.pop().unwrap(), clients.pop().unwrap());
            reading.stream.set_capacity(capacity);
            let reads = Script::new().watch("/").get("/a").then().get("/a").set("/b", "1");
            let writes = Script::new().set("/a", "1").then().set("/a", "2").set("/a", "3");
            let heard = converse(&server, vec![(reading, reads), (writing, writes)]);
            check_order(&heard[0], 4);
            check_order(&heard[1], 3);
            let zxids = event_zxids(&heard[0]);
            assert!(zxids.is_sorted_by(|one, next| one < next), "an event twice: {zxids:?}");
        });
    }
}

#[test]
fn no_byte_follows_the_end_of_a_connection_that_gets_events() {
    check(|| {
        let (server, mut clients) = Server::start(EngineConfig::default(), 2);
        let (closing, writing) = (clients.pop().unwrap(), clients.pop().unwrap());
        let closes = Script::new().watch("/").get("/a").then().close_session();
        let writes = Script::new().set("/a", "1").then().set("/a", "2").then().set("/a", "3");
        let heard = converse(&server, vec![(closing, closes), (writing, writes)]);
        check_order(&heard[0], 3);
        check_order(&heard[1], 3);
    });
}

/// More events than may be unsent pause the connection; no reply follows that could end the pause.
#[test]
fn a_connection_paused_by_events_continues_when_the_log_thread_has_sent_them() {
    let path = format!("/{}", "x".repeat(OUTBOX_BYTES_SOFT / 2));
    check_part(10, move || {
        let (server, mut clients) = Server::start(EngineConfig::default(), 2);
        let (watching, writing) = (clients.pop().unwrap(), clients.pop().unwrap());
        let watches = Script::new().exists_and_watch(&path).watch("/").then().get("/a");
        let writes =
            Script::new().create(&path, CreateMode::Persistent).set(&path, "1").set(&path, "2");
        let heard = converse(&server, vec![(watching, watches), (writing, writes)]);
        // The node may exist when the client asks for it.
        let replies: Vec<_> = heard[0].iter().filter(|heard| !heard.is_event()).collect();
        assert_eq!(replies.len(), 3);
        check_order(&heard[1], 3);
    });
}
