//! `dump`: the sessions and connections by the time at which they end, and the ephemerals.

use std::fmt::Write;

use super::java::{date, socket_address};
use crate::{Dump, Schedule};

/// Renders `dump`.
pub fn dump(dump: &Dump) -> String {
    let mut text = String::from("SessionTracker dump:\n");
    put_schedule(&mut text, "Session", &dump.sessions, |text, session| {
        let _ = write!(text, "0x{:x}", session.0);
    });
    text.push_str("ephemeral nodes dump:\n");
    let _ = writeln!(text, "Sessions with Ephemerals ({}):", dump.ephemerals.len());
    for (session, paths) in &dump.ephemerals {
        let _ = writeln!(text, "0x{:x}:", session.0);
        for path in paths {
            let _ = writeln!(text, "\t{path}");
        }
    }
    text.push_str("Connections dump:\n");
    put_schedule(&mut text, "Connections", &dump.connections, |text, connection| {
        let peer = socket_address(connection.peer);
        let _ = write!(text, "ip: {peer} sessionId: 0x{:x}", connection.session.0);
    });
    text
}

fn put_schedule<T>(
    text: &mut String,
    what: &str,
    schedule: &Schedule<T>,
    put: impl Fn(&mut String, &T),
) {
    let total: usize = schedule.values().map(Vec::len).sum();
    let _ = writeln!(text, "{what} Sets ({})/({total}):", schedule.len());
    for (end_ms, members) in schedule {
        let _ = writeln!(text, "{} expire at {}:", members.len(), date(*end_ms));
        for member in members {
            text.push('\t');
            put(text, member);
            text.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ironkeeper_proto::SessionId;

    use super::*;
    use crate::EndingConnection;

    #[test]
    fn an_idle_server_shows_who_asks() {
        let asker =
            EndingConnection { peer: ([127, 0, 0, 1], 46382).into(), session: SessionId::NONE };
        let dump = Dump {
            connections: BTreeMap::from([(1_794_779_970_000, vec![asker])]),
            ..Dump::default()
        };
        assert_eq!(
            super::dump(&dump),
            "SessionTracker dump:\n\
             Session Sets (0)/(0):\n\
             ephemeral nodes dump:\n\
             Sessions with Ephemerals (0):\n\
             Connections dump:\n\
             Connections Sets (1)/(1):\n\
             1 expire at Sun Nov 15 21:59:30 UTC 2026:\n\
             \tip: /127.0.0.1:46382 sessionId: 0x0\n"
        );
    }

    #[test]
    fn sessions_ephemerals_and_connections_are_listed() {
        let (one, two) = (SessionId(0x0100_002a_3d1e_0000), SessionId(0x0100_002a_3d1e_0001));
        let connection =
            |port: u16, session| EndingConnection { peer: ([127, 0, 0, 1], port).into(), session };
        let dump = Dump {
            sessions: BTreeMap::from([
                (1_794_780_058_000, vec![one, two]),
                (1_794_780_060_000, vec![SessionId(-1)]),
            ]),
            ephemerals: vec![(one, vec!["/app/e1".to_owned(), "/app/e2".to_owned()])],
            connections: BTreeMap::from([(
                1_794_780_060_000,
                vec![connection(45832, two), connection(45852, SessionId::NONE)],
            )]),
        };
        assert_eq!(
            super::dump(&dump),
            "SessionTracker dump:\n\
             Session Sets (2)/(3):\n\
             2 expire at Sun Nov 15 22:00:58 UTC 2026:\n\
             \t0x100002a3d1e0000\n\
             \t0x100002a3d1e0001\n\
             1 expire at Sun Nov 15 22:01:00 UTC 2026:\n\
             \t0xffffffffffffffff\n\
             ephemeral nodes dump:\n\
             Sessions with Ephemerals (1):\n\
             0x100002a3d1e0000:\n\
             \t/app/e1\n\
             \t/app/e2\n\
             Connections dump:\n\
             Connections Sets (1)/(2):\n\
             2 expire at Sun Nov 15 22:01:00 UTC 2026:\n\
             \tip: /127.0.0.1:45832 sessionId: 0x100002a3d1e0001\n\
             \tip: /127.0.0.1:45852 sessionId: 0x0\n"
        );
    }
}
