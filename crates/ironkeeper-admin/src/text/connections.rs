//! `cons`, and the list of clients in `stat`.

use std::fmt::Write;

use super::java::socket_address;
use crate::{Connection, SessionState};

/// Renders `cons`: all fields of every connection, and an empty line.
pub fn cons(connections: &[Connection]) -> String {
    let mut text = String::new();
    for connection in connections {
        put_brief(&mut text, connection);
        if let Some(session) = &connection.session {
            put_session(&mut text, session);
        }
        text.push_str(")\n");
    }
    text.push('\n');
    text
}

/// Renders every connection without the fields of its session.
pub(super) fn clients(connections: &[Connection]) -> String {
    let mut text = String::new();
    for connection in connections {
        put_brief(&mut text, connection);
        text.push_str(")\n");
    }
    text.push('\n');
    text
}

fn put_brief(text: &mut String, connection: &Connection) {
    let Connection { queued, packets_received, packets_sent, .. } = connection;
    // In brackets: the interest set of Java's selector, 1 to read and 4 to write.
    let interest = u8::from(connection.is_read) | u8::from(connection.has_unsent) << 2;
    let _ = write!(
        text,
        " {}[{interest:x}](queued={queued},recved={packets_received},sent={packets_sent}",
        socket_address(connection.peer),
    );
}

fn put_session(text: &mut String, session: &SessionState) {
    let SessionState { id, timeout_ms, last_operation, established_ms, .. } = session;
    let _ =
        write!(text, ",sid=0x{:x},lop={last_operation},est={established_ms},to={timeout_ms}", id.0);
    if session.last_xid.0 >= 0 {
        let _ = write!(text, ",lcxid=0x{:x}", session.last_xid.0);
    }
    let _ = write!(
        text,
        ",lzxid=0x{:x},lresp={},llat={},minlat={},avglat={},maxlat={}",
        session.last_zxid.0,
        session.last_response_ms,
        session.last_latency_ms,
        session.min_latency_ms,
        session.average_latency_ms,
        session.max_latency_ms,
    );
}

#[cfg(test)]
mod tests {
    use ironkeeper_proto::{SessionId, Xid, Zxid};

    use super::*;

    fn connection(port: u16, packets: [u64; 2], session: Option<SessionState>) -> Connection {
        let [packets_received, packets_sent] = packets;
        Connection {
            peer: ([127, 0, 0, 1], port).into(),
            queued: 0,
            is_read: session.is_some(),
            has_unsent: false,
            packets_received,
            packets_sent,
            session,
        }
    }

    fn session() -> SessionState {
        SessionState {
            id: SessionId(0x0100_002a_3d1e_0000),
            timeout_ms: 10_000,
            last_operation: "PING",
            established_ms: 1_794_780_046_048,
            last_xid: Xid(6),
            last_zxid: Zxid(3),
            last_response_ms: 2_876_300,
            last_latency_ms: 1,
            min_latency_ms: 0,
            average_latency_ms: 16,
            max_latency_ms: 64,
        }
    }

    #[test]
    fn a_connection_without_session_is_shown_in_brief() {
        let connections =
            [connection(45842, [1, 0], None), connection(45776, [7, 7], Some(session()))];
        assert_eq!(
            cons(&connections),
            " /127.0.0.1:45842[0](queued=0,recved=1,sent=0)\n \
             /127.0.0.1:45776[1](queued=0,recved=7,sent=7,sid=0x100002a3d1e0000,lop=PING,\
             est=1794780046048,to=10000,lcxid=0x6,lzxid=0x3,lresp=2876300,llat=1,minlat=0,\
             avglat=16,maxlat=64)\n\n"
        );
    }

    #[test]
    fn after_a_reset_there_is_no_xid() {
        let reset = SessionState {
            id: SessionId(-1),
            last_operation: "NA",
            last_xid: Xid(-1),
            last_zxid: Zxid(-1),
            last_response_ms: 0,
            last_latency_ms: 0,
            average_latency_ms: 0,
            max_latency_ms: 0,
            ..session()
        };
        assert_eq!(
            cons(&[connection(45776, [0, 0], Some(reset))]),
            " /127.0.0.1:45776[1](queued=0,recved=0,sent=0,sid=0xffffffffffffffff,lop=NA,\
             est=1794780046048,to=10000,lzxid=0xffffffffffffffff,lresp=0,llat=0,minlat=0,avglat=0,\
             maxlat=0)\n\n"
        );
    }

    #[test]
    fn a_resumed_session_shows_xid_zero() {
        let resumed = SessionState {
            id: SessionId(2),
            last_operation: "null",
            last_xid: Xid(0),
            last_zxid: Zxid(0),
            ..session()
        };
        let text = cons(&[connection(60018, [1, 1], Some(resumed))]);
        assert!(text.contains("sid=0x2,lop=null,est=1794780046048,to=10000,lcxid=0x0,lzxid=0x0,"));
    }

    #[test]
    fn stat_lists_clients_in_brief() {
        let mut busy = connection(45776, [7, 7], Some(session()));
        busy.queued = 2;
        busy.has_unsent = true;
        assert_eq!(
            clients(&[connection(45894, [1, 0], None), busy]),
            " /127.0.0.1:45894[0](queued=0,recved=1,sent=0)\n \
             /127.0.0.1:45776[5](queued=2,recved=7,sent=7)\n\n"
        );
        assert_eq!((clients(&[]), cons(&[])), ("\n".to_owned(), "\n".to_owned()));
    }
}
