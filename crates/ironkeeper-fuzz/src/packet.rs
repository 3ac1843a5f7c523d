//! The quorum port: a stream of packets from the other side of a link.

use bytes::Bytes;
use ironkeeper_proto::quorum_packet::{
    LearnerMessage, Packet, Sender, Touches, is_unknown_to_learners, packet_len, packet_len_max,
};

/// The maximal length of a field, small so that the limit is reached by small inputs.
const FIELD_MAX: usize = 4096;

/// A stream that a learner sends.
pub(crate) fn packets_of_learner(bytes: &[u8]) {
    stream(bytes, Sender::Learner);
}

/// A stream that a leader sends.
pub(crate) fn packets_of_leader(bytes: &[u8]) {
    stream(bytes, Sender::Leader);
}

fn stream(bytes: &[u8], sender: Sender) {
    let mut rest = Bytes::copy_from_slice(bytes);
    while let Ok(Some(len)) = packet_len(&rest, FIELD_MAX) {
        assert!((1..=rest.len()).contains(&len) && len <= packet_len_max(FIELD_MAX));
        assert_eq!(packet_len(&rest[..len - 1], FIELD_MAX), Ok(None), "the length is minimal");
        let packet = rest.split_to(len);
        let _ = is_unknown_to_learners(&packet);
        if let Ok(packet) = Packet::decode(&packet, sender) {
            visit(&packet);
            let again = encoded(&packet);
            assert_eq!(packet_len(&again, again.len()), Ok(Some(again.len())));
            let decoded = Packet::decode(&again, sender).expect("an encoded packet is readable");
            // Fields that old servers leave out are written with their defaults, once.
            assert_eq!(encoded(&decoded), again);
        }
    }
}

fn encoded(packet: &Packet) -> Bytes {
    let mut out = Vec::new();
    packet.encode(&mut out);
    out.into()
}

/// Iterates over everything that is decoded lazily.
fn visit(packet: &Packet) {
    match packet {
        Packet::Pong { report, .. } => {
            let touches = Touches::from(report.clone());
            assert_eq!(touches.iter().count(), touches.len());
        }
        Packet::Learner(LearnerMessage::Request(request)) => {
            let _ = request.is_readable(FIELD_MAX);
            if let Some(ids) = &request.auth {
                assert_eq!(ids.iter().count(), ids.len());
            }
        }
        _ => {}
    }
}
