//! Detection of sessions that expire too early.
//!
//! A session may expire only if the leader was not notified of it for the session timeout. The
//! checker cannot observe what a leader has received, so it uses only certain facts: the session
//! has just been created, or the only leader of that time has replied to a request of the session.
//! A later leader gives every session its full timeout, so the check holds whatever happens to the
//! first leader. The time in which the leader's process was paused is not counted, because it
//! received nothing.

use ironkeeper_engine::config::LocalSessions;
use ironkeeper_proto::{Epoch, SessionId};
use ironkeeper_zab::{LinkId, Status};

use super::world::World;

/// The rate of the fastest server clock: milliseconds per second.
const CLOCK_PER_MILLE_MAX: u64 = 1150;

/// Pauses of fewer ticks are not subtracted, because the process does not notice them.
const PAUSE_TICKS_MIN: u64 = 3;

/// The term of one leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reign {
    node: usize,
    boot: u64,
    epoch: Epoch,
}

/// A time at which the session was certainly alive, as its leader knew.
#[derive(Clone, Copy, Debug)]
pub struct SignOfLife {
    pub at_us: u64,
    /// The term of the leader that received the request.
    pub reign: Option<Reign>,
}

impl World {
    /// Returns the leader term of the server at the other end of a client's link.
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

    /// Returns whether sessions are global: a local session is lost with its server.
    pub(super) fn are_sessions_global(&self) -> bool {
        self.plan.engine.local_sessions == LocalSessions::Off
    }

    /// Records a reply to a request that the client sent at `at_us`, when its server had the leader
    /// term `then`.
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
        // A leader that has been replaced may not know it yet, and its session table does not
        // count.
        if self.leadership.newest().is_some_and(|(epoch, ..)| epoch == reign.epoch)
            && self.are_sessions_global()
            && self.nothing_ends(reign.node, self.clients[client].session)
        {
            self.clients[client].alive = Some(SignOfLife { at_us, reign: Some(reign) });
        }
    }

    /// Returns whether a session is alive and no closeSession can be in flight. While one is in
    /// flight, the requests of the session still receive replies.
    fn nothing_ends(&self, leader: usize, session: SessionId) -> bool {
        self.nodes[leader].process.as_ref().is_some_and(|process| {
            process.engine.zab().outstanding() == 0 && process.db.read().sessions.contains(session)
        })
    }

    /// Checks the reply to a client that its session has expired.
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

    /// Returns how long the leader was paused since then, if it still leads. The pauses of a
    /// replaced leader, which may not know that it was replaced, do not count.
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
