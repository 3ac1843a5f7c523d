//! Texts of peers, clients and configuration files.

use ironkeeper_config::{Config, Sources};
use ironkeeper_engine::auth::DigestAlgorithm;
use ironkeeper_proto::election::Opening;
use ironkeeper_proto::four_letter::FourLetterWord;
use ironkeeper_proto::membership::{Member, Membership};
use ironkeeper_proto::{IpRange, jute, path};

/// The membership of an ensemble, as members and reconfig requests send it.
pub(crate) fn membership(bytes: &[u8]) {
    let text = jute::text(bytes);
    if let Ok(member) = Member::parse(&text) {
        let shown = member.to_string();
        let again = Member::parse(&shown).expect("a printed member is readable");
        assert_eq!(again.to_string(), shown);
    }
    if let Ok(membership) = Membership::parse(&text) {
        let again = Membership::parse(&membership.to_string());
        let again = again.expect("a printed membership is readable");
        assert_eq!(again.to_string(), membership.to_string());
        assert_eq!(again.version, membership.version);
        assert_eq!(again.voters().collect::<Vec<_>>(), membership.voters().collect::<Vec<_>>());
        let ids = membership.members.keys();
        assert!(ids.into_iter().all(|id| again.weight(*id) == membership.weight(*id)));
    }
}

/// What a client sends to identify itself, and the texts of access control lists.
pub(crate) fn credentials(bytes: &[u8]) {
    let text = jute::text(bytes);
    let user = text.split(':').next().unwrap_or_default();
    for algorithm in [DigestAlgorithm::Sha1, DigestAlgorithm::Sha512] {
        let id = algorithm.id(&text);
        assert!(id.starts_with(user) && id[user.len()..].starts_with(':'));
    }
    if let Some(range) = IpRange::parse(&text) {
        assert!(range.contains(&range));
        assert!(range.prefix_for(range.shape()).is_some());
    }
    if path::validate(&text).is_ok() {
        assert_eq!(path::parent(&text).is_none(), text == "/");
        assert!(text.ends_with(path::name(&text)));
    }
    let _ = FourLetterWord::from_bytes(bytes);
    let _ = Opening::decode(bytes);
}

/// The files and flags of a configuration, separated by NUL: `zoo.cfg`, the dynamic file, `myid`,
/// `JVMFLAGS`, `SERVER_JVMFLAGS`, the members proposed last.
pub(crate) fn zoo_cfg(bytes: &[u8]) {
    let text = jute::text(bytes);
    let mut texts = text.split('\0');
    let zoo_cfg = texts.next().unwrap_or_default();
    let mut optional = || texts.next().filter(|text| !text.is_empty());
    let (dynamic, my_id) = (optional(), optional());
    let jvmflags = optional().unwrap_or_default();
    let server_jvmflags = optional().unwrap_or_default();
    let next = optional();
    let sources =
        Sources { zoo_cfg, dynamic, next, my_id, jvmflags, server_jvmflags, ..Sources::default() };
    let loaded = Config::from_sources(&sources);
    match &loaded {
        Ok(loaded) => {
            for notice in &loaded.notices {
                let _ = notice.shown_in("zoo.cfg");
            }
            let _ = loaded.config.validate();
        }
        Err(error) => drop(error.shown_in("zoo.cfg")),
    }
    assert_eq!(format!("{:?}", Config::from_sources(&sources)), format!("{loaded:?}"));
}
