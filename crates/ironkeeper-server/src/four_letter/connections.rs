//! `cons`, and the list of clients in `stat`.

use std::fmt::Write;

use ironkeeper_engine::conn::ConnView;

use super::java_text::socket_address;

/// Renders all fields of every connection, and an empty line.
pub(super) fn cons(views: &[ConnView]) -> String {
    let mut text = String::new();
    for view in views {
        put_brief(&mut text, view);
        if view.session.0 != 0 {
            put_details(&mut text, view);
        }
        text.push_str(")\n");
    }
    text.push('\n');
    text
}

/// Renders every connection without the fields of its session.
pub(super) fn clients(views: &[ConnView]) -> String {
    let mut text = String::new();
    for view in views {
        put_brief(&mut text, view);
        text.push_str(")\n");
    }
    text.push('\n');
    text
}

fn put_brief(text: &mut String, view: &ConnView) {
    let ConnView { queued, stats, .. } = view;
    // In brackets: the interest set of Java's selector, 1 to read and 4 to write.
    let interest = u8::from(view.is_read) | u8::from(view.unsent) << 2;
    let _ = write!(
        text,
        " {}[{interest:x}](queued={queued},recved={},sent={}",
        socket_address(view.peer),
        stats.packets_received,
        stats.packets_sent,
    );
}

fn put_details(text: &mut String, view: &ConnView) {
    let stats = &view.stats;
    let _ = write!(
        text,
        ",sid=0x{:x},lop={},est={},to={}",
        view.session.0,
        stats.last_op.name(),
        stats.established_wall_ms,
        view.timeout_ms,
    );
    if stats.last_xid.0 >= 0 {
        let _ = write!(text, ",lcxid=0x{:x}", stats.last_xid.0);
    }
    let _ = write!(
        text,
        ",lzxid=0x{:x},lresp={},llat={},minlat={},avglat={},maxlat={}",
        stats.last_zxid.0,
        stats.last_response_ms,
        stats.last_latency_ms,
        stats.min_latency_ms(),
        stats.average_latency_ms(),
        stats.max_latency_ms(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironkeeper_engine::stats::{ConnStats, LastOp};
    use ironkeeper_proto::{OpCode, SessionId, Xid, Zxid};

    fn view(port: u16, session: i64, stats: ConnStats) -> ConnView {
        ConnView {
            peer: ([127, 0, 0, 1], port).into(),
            session: SessionId(session),
            timeout_ms: 10_000,
            queued: 0,
            is_read: session != 0,
            unsent: false,
            stats,
        }
    }

    fn client() -> ConnStats {
        let mut stats = ConnStats::new(1_794_780_046_048);
        stats.packets_received = 7;
        stats.packets_sent = 3;
        let zxid = Zxid(3);
        stats.note_reply(LastOp::Op(OpCode::CreateSession), Xid(0), zxid, 2_876_100, 0);
        stats.note_reply(LastOp::Op(OpCode::Create2), Xid(5), zxid, 2_876_200, 64);
        stats.note_reply(LastOp::Op(OpCode::GetChildren2), Xid(6), zxid, 2_876_222, 2);
        stats.note_reply(LastOp::Op(OpCode::Ping), Xid::PING, zxid, 2_876_300, 1);
        stats
    }

    fn asker() -> ConnStats {
        let mut stats = ConnStats::new(1_794_780_046_500);
        stats.packets_received = 1;
        stats
    }

    #[test]
    fn a_connection_without_session_is_shown_in_brief() {
        let views = [view(45842, 0, asker()), view(45776, 0x0100_002a_3d1e_0000, client())];
        assert_eq!(
            cons(&views),
            " /127.0.0.1:45842[0](queued=0,recved=1,sent=0)\n \
             /127.0.0.1:45776[1](queued=0,recved=7,sent=7,sid=0x100002a3d1e0000,lop=PING,\
             est=1794780046048,to=10000,lcxid=0x6,lzxid=0x3,lresp=2876300,llat=1,minlat=0,\
             avglat=16,maxlat=64)\n\n"
        );
    }

    #[test]
    fn after_a_reset_there_is_no_xid() {
        let mut stats = client();
        stats.reset();
        assert_eq!(
            cons(&[view(45776, -1, stats)]),
            " /127.0.0.1:45776[1](queued=0,recved=0,sent=0,sid=0xffffffffffffffff,lop=NA,\
             est=1794780046048,to=10000,lzxid=0xffffffffffffffff,lresp=0,llat=0,minlat=0,avglat=0,\
             maxlat=0)\n\n"
        );
    }

    #[test]
    fn a_session_that_came_back_has_done_nothing_yet() {
        let mut back = view(60018, 2, ConnStats::new(1_794_780_316_422));
        back.stats.packets_received = 1;
        back.stats.packets_sent = 1;
        assert_eq!(
            cons(&[back]),
            " /127.0.0.1:60018[1](queued=0,recved=1,sent=1,sid=0x2,lop=null,est=1794780316422,\
             to=10000,lcxid=0x0,lzxid=0x0,lresp=0,llat=0,minlat=0,avglat=0,maxlat=0)\n\n"
        );
    }

    #[test]
    fn stat_lists_clients_in_brief() {
        let mut busy = view(45776, 5, client());
        busy.queued = 2;
        busy.unsent = true;
        assert_eq!(
            clients(&[view(45894, 0, asker()), busy]),
            " /127.0.0.1:45894[0](queued=0,recved=1,sent=0)\n \
             /127.0.0.1:45776[5](queued=2,recved=7,sent=7)\n\n"
        );
        assert_eq!((clients(&[]), cons(&[])), ("\n".to_owned(), "\n".to_owned()));
    }
}
