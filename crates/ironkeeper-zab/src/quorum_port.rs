//! The quorum port: links between a leader and its learners.

use ironkeeper_proto::{Packet, ServerId};

use crate::io::{Hangup, LinkId, LinkOp, Output};
use crate::shared::Next;
use crate::zab::{Role, Zab};

/// A link that was accepted on the quorum port during an election: this server may be about to
/// lead. (An Apache server refuses such a connection, and its learners try again; a learner whose
/// link is closed starts a new election.)
#[derive(Debug)]
pub(crate) struct EarlyLearner {
    pub(crate) until_ms: u64,
    /// FOLLOWERINFO or OBSERVERINFO. The learner sends nothing more before it gets a reply.
    pub(crate) greeting: Option<Packet>,
}

/// How long the link of an early learner is kept.
const EARLY_LEARNER_MS: u64 = 500;

impl Zab {
    pub(crate) fn on_accepted(&mut self, link: LinkId, out: &mut Vec<Output>) {
        match &mut self.role {
            Role::Leading(leader) => leader.on_accepted(&self.shared, link),
            Role::Learning(_) => {
                out.push(Output::Link(LinkOp::Hangup { link, reason: Hangup::NotLeading }));
            }
            Role::New | Role::Settling | Role::Looking(_) => {
                let until_ms = self.shared.now_ms + EARLY_LEARNER_MS;
                self.early.insert(link, EarlyLearner { until_ms, greeting: None });
            }
        }
    }

    pub(crate) fn on_packet(&mut self, link: LinkId, packet: Packet, out: &mut Vec<Output>) {
        if let Some(early) = self.early.get_mut(&link) {
            if early.greeting.replace(packet).is_some() {
                self.early.remove(&link);
                let reason = Hangup::Protocol("it did not wait for an answer");
                out.push(Output::Link(LinkOp::Hangup { link, reason }));
            }
            return;
        }
        self.act(out, |role, cx| match role {
            Role::Learning(learner) => learner.on_packet(cx, link, packet),
            Role::Leading(leader) => leader.on_packet(cx, link, packet),
            Role::New | Role::Settling | Role::Looking(_) => Next::Stay,
        });
    }

    pub(crate) fn on_dialed(
        &mut self,
        peer: ServerId,
        link: Option<LinkId>,
        out: &mut Vec<Output>,
    ) {
        self.act(out, |role, cx| match role {
            Role::Learning(learner) => learner.on_dialed(cx, peer, link),
            Role::New | Role::Settling | Role::Looking(_) | Role::Leading(_) => {
                if let Some(link) = link {
                    cx.hang_up(link, Hangup::RoleEnded);
                }
                Next::Stay
            }
        });
    }

    /// Returns when the first early learner times out.
    pub(crate) fn early_until_ms(&self) -> u64 {
        self.early.values().map(|early| early.until_ms).min().unwrap_or(u64::MAX)
    }

    /// Closes the links of the early learners that `which` selects.
    pub(crate) fn hang_up_early(
        &mut self,
        which: impl Fn(&EarlyLearner) -> bool,
        out: &mut Vec<Output>,
    ) {
        self.early.retain(|link, early| {
            let goes = which(early);
            if goes {
                out.push(Output::Link(LinkOp::Hangup { link: *link, reason: Hangup::NotLeading }));
            }
            !goes
        });
    }
}
