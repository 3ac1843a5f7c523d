//! The election port: an opening, then frames with notifications.

use bytes::Bytes;
use ironkeeper_proto::Notification;
use ironkeeper_proto::election::{Opening, frame_len};

/// The stream of one connection.
pub(crate) fn election(bytes: &[u8]) {
    let mut rest = Bytes::copy_from_slice(bytes);
    let Ok(Some((opening, len))) = Opening::decode(&rest) else { return };
    assert_eq!(Opening::decode(&rest[..len - 1]), Ok(None), "the length is minimal");
    assert!(opening.dialable().count() <= opening.addresses.len());
    check_opening(&opening);
    let _ = rest.split_to(len);
    while let Ok(Some(len)) = frame_len(&rest) {
        if len > rest.len() {
            return;
        }
        let frame = rest.split_to(len).slice(4..);
        if let Ok(notification) = Notification::decode(&frame) {
            // Notifications of old servers are shorter; what is written is the newest format.
            let again = encoded(&notification);
            let decoded = Notification::decode(&again).expect("an encoded vote is readable");
            assert_eq!(decoded.format, Notification::FORMAT);
            assert_eq!(Notification { format: notification.format, ..decoded }, notification);
        }
    }
}

fn check_opening(opening: &Opening) {
    let mut encoded = Vec::new();
    opening.encode(&mut encoded);
    if let Ok(Some((decoded, len))) = Opening::decode(&encoded) {
        assert_eq!((&decoded, len), (opening, encoded.len()));
    }
}

fn encoded(notification: &Notification) -> Bytes {
    let mut out = Vec::new();
    notification.encode(&mut out);
    out.into()
}
