//! Leadership confirmation: a leader replies to `sync`, and that a session is unknown, only after a
//! quorum has confirmed that it still leads.

use ironkeeper_proto::quorum_packet::LeaderMessage;
use ironkeeper_proto::{Epoch, Packet, SessionId, Zxid};
use ironkeeper_zab::{Durable, Input, LinkOp, Output, Upcall, Zab};

use crate::server::*;

/// Returns the numbers of the confirmation pings that were sent.
fn questions(out: &[Output]) -> Vec<Zxid> {
    let questions = out.iter().filter_map(|output| match output {
        Output::Link(LinkOp::Send { packet: Packet::Ping { zxid }, .. }) => Some(*zxid),
        _ => None,
    });
    questions.collect()
}

/// ZOOKEEPER-1675, 2136.
#[test]
fn a_sync_is_answered_when_a_quorum_has_said_that_it_still_follows() {
    let (mut leader, one, two) = established();
    let asked = leader.sync(None);
    assert_eq!(asked.len(), 2, "nothing but questions: {asked:?}");
    let first = questions(&asked)[0];
    // Requests that arrive while a ping is open wait together for the next one.
    assert_eq!(leader.sync(Some(two)), []);
    assert_eq!(leader.sync(None), []);
    // Replies to ordinary pings and unknown numbers have no effect.
    for echo in [z(3, 0), Zxid(i64::MIN), Zxid(-77), Zxid(0)] {
        assert_eq!(leader.packet(two, pong(echo)), "");
    }
    let mut out = Vec::new();
    leader.zab.step(1000, Input::Packet { link: one, packet: pong(first) }, &mut out);
    assert_eq!(out.remove(0), Output::Up(Upcall::FromLeader(LeaderMessage::Synced)));
    let [second, again] = questions(&out)[..] else { panic!("another question: {out:?}") };
    assert!(second == again && second != first);
    assert_eq!(leader.packet(two, pong(first)), "", "an answer to the question before");
    assert_eq!(leader.packet(two, pong(second)), "SYNC, own SYNC");
    assert_eq!(leader.zab.unconfirmed().count(), 0);
}

#[test]
fn a_sync_waits_for_what_was_proposed_before_it_and_is_answered_before_what_comes_after() {
    let (mut leader, one, two) = established();
    leader.propose(z(3, 1));
    let question = questions(&leader.sync(Some(one)))[0];
    assert_eq!(leader.packet(two, pong(question)), "", "the proposal is not committed");
    leader.done(Durable::Flushed(z(3, 1)));
    let said = leader.packet(one, Packet::Ack { zxid: z(3, 1) });
    assert_eq!(said, "commit 3:1, COMMIT 3:1, COMMIT 3:1, SYNC");
    // No follower replies to this ping, but a quorum acknowledges a proposal made after the `sync`.
    leader.sync(Some(one));
    leader.propose(z(3, 2));
    leader.done(Durable::Flushed(z(3, 2)));
    let said = leader.packet(two, Packet::Ack { zxid: z(3, 2) });
    assert_eq!(said, "SYNC, commit 3:2, COMMIT 3:2, COMMIT 3:2");
}

#[test]
fn a_follower_that_comes_while_a_question_is_open_is_asked_too() {
    let (mut leader, one, two) = established();
    leader.input(Input::Closed { link: one });
    let question = questions(&leader.sync(None))[0];
    leader.input(Input::Closed { link: two });
    let (one, _) = leader.greet(1, 3);
    leader.packet(one, Packet::AckEpoch { last: z(1, 2), current: Some(Epoch(3)) });
    let mut out = Vec::new();
    let packet = Packet::Ack { zxid: z(3, 0) };
    leader.zab.step(1000, Input::Packet { link: one, packet }, &mut out);
    assert_eq!(questions(&out), [question]);
    assert_eq!(leader.packet(one, pong(question)), "own SYNC");
}

#[test]
fn a_session_is_called_gone_by_whoever_still_leads() {
    let (mut leader, one, two) = established();
    let gone = LeaderMessage::Revalidated { session: SessionId(0x77), valid: false };
    let mut out = Vec::new();
    leader.zab.reply_confirmed(None, gone, &mut out);
    leader.zab.reply_confirmed(Some(two), gone, &mut out);
    let question = questions(&out)[0];
    assert_eq!(out.len(), 2, "nothing but questions: {out:?}");
    assert_eq!(leader.zab.unconfirmed().collect::<Vec<_>>(), [&gone, &gone]);
    out.clear();
    leader.zab.step(1000, Input::Packet { link: one, packet: pong(question) }, &mut out);
    assert_eq!(out.remove(0), Output::Up(Upcall::FromLeader(gone)));
    // The second request arrived after the first ping was sent.
    let question = questions(&out)[0];
    let said = leader.packet(one, pong(question));
    assert_eq!(said, "REVALIDATE 0x77 false");
}

#[test]
fn a_server_of_its_own_knows_which_sessions_there_are() {
    let mut alone = Zab::standalone(z(1, 1));
    let mut out = Vec::new();
    let gone = LeaderMessage::Revalidated { session: SessionId(0x77), valid: false };
    alone.reply_confirmed(None, gone, &mut out);
    assert_eq!(out, [Output::Up(Upcall::FromLeader(gone))]);
}
