//! Checks whether the running servers can be replaced one by one, and in which order.

use super::findings::{Findings, Weight};
use ironkeeper_shell::four_letter::{Overview, Silence};

/// The oldest release whose servers Ironkeeper was tested with.
const OLDEST: (u32, u32) = (3, 5);

/// Checks the status replies of the servers.
pub fn check(answers: &[(String, Result<Overview, Silence>)], findings: &mut Findings) {
    findings.section("servers");
    for (server, answer) in answers {
        match answer {
            Ok(seen) => {
                let text = format!("{server}: {} of {}, at {}", seen.mode, seen.version, seen.zxid);
                match release(&seen.version) {
                    _ if is_ours(seen) => {
                        findings.add(Weight::Good, format!("{text}: is Ironkeeper already"));
                    }
                    Some(release) if release < OLDEST => findings
                        .add(Weight::Obstacle, format!("{text}: upgrade it to 3.5 or later first")),
                    _ => findings.add(Weight::Good, text),
                }
            }
            Err(silence) => findings.add(Weight::Unknown, format!("{server}: {silence}")),
        }
    }
    let seen: Vec<(&str, &Overview)> = answers
        .iter()
        .filter_map(|(server, answer)| Some((server.as_str(), answer.as_ref().ok()?)))
        .collect();
    let leaders = seen.iter().filter(|(_, seen)| seen.is_leader()).count();
    let followers = seen.iter().filter(|(_, seen)| seen.mode == "follower").count();
    if leaders > 1 {
        findings.add(Weight::Obstacle, "several of them lead: they are not of one ensemble");
    }
    if leaders == 0 && followers > 0 {
        findings.add(Weight::Note, "none of them leads: name all members, or look for the leader");
    }
    if leaders + followers > 0 && answers.len() < 3 {
        let text = "fewer than three members: no client is served while one is being replaced";
        findings.add(Weight::Note, text);
    }
    for (server, seen) in order(seen).into_iter().filter(|(_, seen)| !is_ours(seen)) {
        findings.step(step(server, seen));
    }
}

/// Returns whether the server runs Ironkeeper.
fn is_ours(seen: &Overview) -> bool {
    seen.version.contains("ironkeeper")
}

/// Sorts the servers: observers and followers first, because each replacement of the leader costs
/// an election.
fn order<'a>(mut seen: Vec<(&'a str, &'a Overview)>) -> Vec<(&'a str, &'a Overview)> {
    let rank = |mode: &str| match mode {
        "observer" => 0,
        "follower" => 1,
        _ => 2,
    };
    seen.sort_by_key(|(_, seen)| rank(&seen.mode));
    seen
}

fn step(server: &str, seen: &Overview) -> String {
    let mode = &seen.mode;
    let begin = format!("{server} ({mode}): stop it, start `ironkeeper serve --config zoo.cfg`");
    match mode.as_str() {
        "standalone" => format!("{begin} on the same data"),
        _ => format!("{begin} on the same data, wait until `ironkeeper status` shows it serving"),
    }
}

/// Parses `3.9.5` as (3, 9).
fn release(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_all(servers: &[(&str, &str, &str)]) -> String {
        let answer = |mode: &str, version: &str| match mode {
            "" => Err(Silence::NotServing),
            _ => Ok(Overview {
                mode: mode.to_owned(),
                version: version.to_owned(),
                zxid: "0x5".to_owned(),
                ..Overview::default()
            }),
        };
        let answers: Vec<_> = servers
            .iter()
            .map(|(server, mode, version)| ((*server).to_owned(), answer(mode, version)))
            .collect();
        let mut findings = Findings::default();
        check(&answers, &mut findings);
        findings.to_string()
    }

    #[test]
    fn the_leader_is_replaced_last() {
        let told = check_all(&[
            ("a:1", "leader", "3.9.5"),
            ("b:1", "follower", "3.9.5"),
            ("c:1", "observer", "3.8.0"),
        ]);
        let place = |what: &str| told.find(what).unwrap_or_else(|| panic!("{what} in {told}"));
        assert!(place("1. c:1") < place("2. b:1") && place("2. b:1") < place("3. a:1"));
        assert!(told.contains("nothing stands in the way"), "{told}");
    }

    #[test]
    fn old_releases_and_two_ensembles_stand_in_the_way() {
        let told = check_all(&[("a:1", "leader", "3.4.14"), ("b:1", "leader", "3.9.5")]);
        assert!(told.contains("STOP  a:1: leader of 3.4.14"), "{told}");
        assert!(told.contains("not of one ensemble"), "{told}");
        assert!(told.contains("2 things stand in the way") && !told.contains("1. "), "{told}");
    }

    #[test]
    fn a_server_that_is_ironkeeper_is_not_to_be_replaced() {
        let told = check_all(&[
            ("a:1", "leader", "3.9.5"),
            ("b:1", "follower", "3.9.5-ironkeeper-0.1.0"),
            ("c:1", "follower", "3.9.5"),
        ]);
        assert!(told.contains("b:1: follower of 3.9.5-ironkeeper-0.1.0"), "{told}");
        assert!(
            told.contains("1. c:1") && told.contains("2. a:1") && !told.contains("3. "),
            "{told}"
        );
    }

    #[test]
    fn a_server_that_does_not_serve_is_not_known() {
        let told = check_all(&[("a:1", "", ""), ("b:1", "follower", "3.9.5")]);
        assert!(told.contains("????  a:1: not serving requests"), "{told}");
        assert!(
            told.contains("not known whether something stands in the way: one server"),
            "{told}"
        );
        assert!(told.contains("none of them leads"), "{told}");
    }
}
