//! Sessions that end too early.
//!
//! A session may end only when its leader has not heard of it for its time-out. Nobody else knows what a leader
//! has heard, so only what is beyond doubt is held against an end: a session that has just begun, and a sign of
//! life that was answered by the one leader there was. Whoever leads later gives every session its full time,
//! so this holds whatever happens to that leader. And while it stood still it could not hear anybody: that time
//! does not count.

use ironkeeper_engine::config::LocalSessions;
use ironkeeper_proto::{Epoch, SessionId};
use ironkeeper_zab::{LinkId, Status};

use super::world::World;

/// The fastest clock of a server shows so many milliseconds in a second.
const CLOCK_PER_MILLE_MAX: u64 = 1150;

/// Shorter times in which a process stands still are nothing that it would notice.
const PAUSE_TICKS_MIN: u64 = 3;

/// One server's time as a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reign {
    node: usize,
    boot: u64,
    epoch: Epoch,
}

/// The session was alive for certain at this moment, and its leader knew.
#[derive(Clone, Copy, Debug)]
pub struct SignOfLife {
    pub at_us: u64,
    /// Who has heard it.
    pub reign: Option<Reign>,
}

impl World {
    /// The reign of the server at the other end of a client's link.
    pub(super) fn reign_at(&self, client: usize, link: LinkId) -> Option<Reign> {
        self.reign_of(self.server_at(client, link)?)
    }

    fn server_at(&self, client: usize, link: LinkId) -> Option<usize> {
        let own = self.clients[client].node;
        let ends = &self.network.links.get(&link)?.ends;
        ends.iter().map(|end| end.node).find(|node| *node != own)
    }

    fn reign_of(&self, node: usize) -> Option<Reign> {
        let status = self.nodes[node].process.as_ref()?.engine.zab().status();
        let Status::Leading { epoch } = status else { return None };
        Some(Reign { node, boot: self.nodes[node].boot, epoch })
    }

    /// Whether sessions are everybody's matter: local ones go with their server.
    pub(super) fn are_sessions_global(&self) -> bool {
        self.plan.engine.local_sessions == LocalSessions::Off
    }

    /// A client was answered that asked at `at_us`, when its server had the reign `then`.
    pub(super) fn note_sign_of_life(
        &mut self,
        client: usize,
        link: LinkId,
        at_us: u64,
        then: Option<Reign>,
    ) {
        let Some(reign) = then.filter(|then| self.reign_at(client, link) == Some(*then)) else {
            return;
        };
        // A leader that others have replaced may not know it yet, and what it hears is of no use.
        if self.leadership.newest().is_some_and(|(epoch, ..)| epoch == reign.epoch)
            && self.are_sessions_global()
            && self.nothing_ends(reign.node, self.clients[client].session)
        {
            self.clients[client].alive = Some(SignOfLife { at_us, reign: Some(reign) });
        }
    }

    /// Whether a session lives and no end of it can be on its way to the disks: until it is there, what the session
    /// asks for is answered.
    fn nothing_ends(&self, leader: usize, session: SessionId) -> bool {
        self.nodes[leader].process.as_ref().is_some_and(|process| {
            process.engine.zab().outstanding() == 0 && process.db.read().sessions.contains(session)
        })
    }

    /// A client is told that its session is gone.
    pub(super) fn judge_end(&self, client: usize) -> Result<(), String> {
        let this = &self.clients[client];
        let Some(alive) = this.alive.filter(|_| !this.asked_to_close) else { return Ok(()) };
        let silent_us = self.now_us() - alive.at_us - self.stood_still_us(alive);
        let timeout_us = this.timeout_ms as u64 * 1000;
        match silent_us * CLOCK_PER_MILLE_MAX / 1000 >= timeout_us {
            true => Ok(()),
            false => Err(format!(
                "sessions: {:x} of client {client} has ended after {silent_us} us in which it was not heard, \
                 its time-out is {timeout_us} us",
                this.session.0
            )),
        }
    }

    /// For how long the leader has stood still since then, if it is still the same. One that others have replaced
    /// may not know it yet, and its pauses are nobody's any more.
    fn stood_still_us(&self, alive: SignOfLife) -> u64 {
        let newest = self.leadership.newest().map(|(epoch, ..)| epoch);
        let still_leads = |reign: &Reign| {
            self.reign_of(reign.node) == Some(*reign) && Some(reign.epoch) == newest
        };
        let Some(reign) = alive.reign.filter(still_leads) else {
            return 0;
        };
        let pause_us_min = PAUSE_TICKS_MIN * self.plan.engine.tick_ms * 1000;
        let pauses = self.nodes[reign.node].pauses_us.iter();
        let since = |(from_us, until_us): &(u64, u64)| {
            (*until_us).min(self.now_us()).saturating_sub((*from_us).max(alive.at_us))
        };
        pauses.map(since).filter(|us| *us >= pause_us_min).sum()
    }
}
