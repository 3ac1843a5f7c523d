//! The text form of access control lists (`world:anyone:cdrwa,ip:10.0.0.1:r`), parsed and printed.

use std::fmt::{self, Display};

use ironkeeper_client::{Acl, Perms};
use serde::{Serialize, Serializer};

/// The letters of the permissions, in the order in which zkCli prints them.
const LETTERS: [(char, Perms); 5] = [
    ('c', Perms::CREATE),
    ('d', Perms::DELETE),
    ('r', Perms::READ),
    ('w', Perms::WRITE),
    ('a', Perms::ADMIN),
];

/// Parses a list, or returns all errors in it. (zkCli ignores the parts that it cannot parse and
/// sets the rest; with unknown letters such a list can deny all access to the node.)
pub fn parse(text: &str) -> Result<Vec<Acl>, Vec<String>> {
    let mut list = Vec::new();
    let mut complaints = Vec::new();
    for entry in text.split(',') {
        // The id may contain colons.
        let parts =
            entry.split_once(':').and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once(':')?)));
        let Some((scheme, (id, letters))) = parts else {
            complaints.push(format!("{entry} does not have the form scheme:id:perm"));
            continue;
        };
        let mut perms = Perms(0);
        for letter in letters.chars() {
            match LETTERS.iter().find(|(known, _)| *known == letter) {
                Some((_, bit)) => perms = perms.or(*bit),
                None => complaints.push(format!("Unknown perm type: {letter}")),
            }
        }
        list.push(Acl::new(perms, scheme, id));
    }
    if complaints.is_empty() { Ok(list) } else { Err(complaints) }
}

/// Returns the permissions as letters.
pub fn letters(perms: Perms) -> String {
    LETTERS.iter().filter(|(_, bit)| perms.allows(*bit)).map(|(letter, _)| letter).collect()
}

/// Returns the permissions of these letters; `None` if a letter is unknown.
pub fn perms(letters: &str) -> Option<Perms> {
    letters.chars().try_fold(Perms(0), |perms, letter| {
        let (_, bit) = LETTERS.iter().find(|(known, _)| *known == letter)?;
        Some(perms.or(*bit))
    })
}

/// An entry to be printed, as two lines in zkCli's format.
#[derive(Clone, Debug)]
pub struct AclText(pub Acl);

impl Display for AclText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let acl = &self.0;
        write!(f, "'{},'{}\n: {}", acl.scheme, acl.id, letters(acl.perms))
    }
}

impl Serialize for AclText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            scheme: &'a str,
            id: &'a str,
            perms: String,
        }
        let acl = &self.0;
        Fields { scheme: &acl.scheme, id: &acl.id, perms: letters(acl.perms) }.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str, complaints: &[&str]) {
        let (list, said) = match parse(text) {
            Ok(list) => (list, Vec::new()),
            Err(said) => (Vec::new(), said),
        };
        let shown: Vec<String> =
            list.iter().map(|a| format!("{}|{}|{}", a.scheme, a.id, letters(a.perms))).collect();
        assert_eq!(
            (shown.join(" ").as_str(), said),
            (expected, complaints.iter().map(|c| (*c).to_owned()).collect())
        );
    }

    #[test]
    fn ids_may_have_colons_and_bad_entries_are_named() {
        check("world:anyone:r", "world|anyone|r", &[]);
        check("digest:u:aGFzaA==:adcwr", "digest|u:aGFzaA==|cdrwa", &[]);
        check("ip:10.0.0.1:rw,world:anyone:r", "ip|10.0.0.1|rw world|anyone|r", &[]);
        check("auth::r", "auth||r", &[]);
        check("bad", "", &["bad does not have the form scheme:id:perm"]);
        check("world:anyone", "", &["world:anyone does not have the form scheme:id:perm"]);
        check("world:anyone:rx", "", &["Unknown perm type: x"]);
        check(
            "world:anyone:r,bad,ip:1.2.3.4:y",
            "",
            &["bad does not have the form scheme:id:perm", "Unknown perm type: y"],
        );
    }
}
