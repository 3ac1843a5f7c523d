//! The members of an ensemble: programs and roles.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use crate::cache::Cache;
use crate::server::Program;

/// A program that can be a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Ours,
    Apache,
    /// The previous release line: it synchronizes learners in another order.
    Apache38,
}

/// One member, before it has a directory and ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    pub kind: Kind,
    pub observer: bool,
}

/// The members of an ensemble; ids count from one. With equal histories the largest id is elected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership(pub Vec<Member>);

impl Membership {
    /// Parses a list of members that is a literal in this program.
    pub fn of(text: &str) -> Membership {
        text.parse().expect("memberships in the code are well-formed")
    }

    pub fn has(&self, kind: Kind) -> bool {
        self.0.iter().any(|part| part.kind == kind)
    }
}

impl FromStr for Membership {
    type Err = anyhow::Error;

    /// Parses `apache,ours,ours:observer`.
    fn from_str(text: &str) -> Result<Membership> {
        let parts = text.split(',').map(|word| {
            let (kind, role) = word.split_once(':').unwrap_or((word, "participant"));
            let kind = match kind {
                "ours" => Kind::Ours,
                "apache" => Kind::Apache,
                "apache38" => Kind::Apache38,
                _ => bail!("{kind:?} is no member: ours, apache or apache38"),
            };
            let observer = match role {
                "participant" => false,
                "observer" => true,
                _ => bail!("{role:?} is no role: participant or observer"),
            };
            Ok(Member { kind, observer })
        });
        Ok(Membership(parts.collect::<Result<_>>()?))
    }
}

impl fmt::Display for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, part) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let role = if part.observer { ":observer" } else { "" };
            write!(f, "{comma}{}{role}", part.kind)?;
        }
        Ok(())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Ours => "ours",
            Kind::Apache => "apache",
            Kind::Apache38 => "apache38",
        })
    }
}

/// The programs of the kinds that have been requested.
#[derive(Debug, Default)]
pub struct Programs {
    ours: Option<Program>,
    apache: Option<Program>,
    apache38: Option<Program>,
}

impl Programs {
    /// Creates a set with a single program.
    pub fn only(kind: Kind, program: Program) -> Programs {
        let mut programs = Programs::default();
        *match kind {
            Kind::Ours => &mut programs.ours,
            Kind::Apache => &mut programs.apache,
            Kind::Apache38 => &mut programs.apache38,
        } = Some(program);
        programs
    }

    /// Downloads the Apache releases that the ensemble needs.
    pub fn fetch(&mut self, membership: &Membership, cache: &Cache) -> Result<()> {
        if membership.has(Kind::Apache) && self.apache.is_none() {
            self.apache = Some(Program::Apache(cache.apache()?));
        }
        if membership.has(Kind::Apache38) && self.apache38.is_none() {
            self.apache38 = Some(Program::Apache(cache.apache_before()?));
        }
        Ok(())
    }

    /// Returns whether the programs of all members are available.
    pub fn have(&self, membership: &Membership) -> bool {
        membership.0.iter().all(|part| self.get(part.kind).is_ok())
    }

    pub fn get(&self, kind: Kind) -> Result<&Program> {
        match kind {
            Kind::Ours => self.ours.as_ref(),
            Kind::Apache => self.apache.as_ref(),
            Kind::Apache38 => self.apache38.as_ref(),
        }
        .with_context(|| format!("no program was made ready for {kind}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_membership_is_read_and_printed_alike() {
        let text = "apache,apache38,ours:observer";
        assert_eq!(Membership::of(text).to_string(), text);
        assert!(
            Membership::of(text).has(Kind::Apache38) && !Membership::of("ours").has(Kind::Apache)
        );
        assert!("apache,theirs".parse::<Membership>().is_err());
        assert!("ours:leader".parse::<Membership>().is_err());
    }
}
