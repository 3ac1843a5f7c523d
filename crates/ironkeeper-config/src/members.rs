//! From the `server.N` lines to a standalone server or a member of an ensemble.

use ironkeeper_proto::membership::{Member, PeerRole};
use ironkeeper_proto::{Membership, ServerId};

use crate::draft::Draft;
use crate::notice::Feature;
use crate::problem::ValueError;
use crate::setting::Setting;
use crate::{EnsembleConfig, ListenAddress};

/// The settings of an ensemble, before it is known whether there is one.
pub(crate) struct MembersDraft {
    pub(crate) members: Vec<(ServerId, Member)>,
    /// `group.N` and `weight.N`.
    pub(crate) quorum_lines: Vec<Setting>,
    pub(crate) standalone_enabled: bool,
    pub(crate) multi_address: bool,
    pub(crate) peer_role: Option<(PeerRole, Setting)>,
    pub(crate) init_limit: Option<u32>,
    pub(crate) sync_limit: Option<u32>,
    /// The other settings; its members are filled in at the end.
    pub(crate) settings: EnsembleConfig,
    /// Settings that have no effect on a standalone server.
    pub(crate) ensemble_only: Vec<Setting>,
}

impl Default for MembersDraft {
    fn default() -> MembersDraft {
        MembersDraft {
            members: Vec::new(),
            quorum_lines: Vec::new(),
            standalone_enabled: true,
            multi_address: false,
            peer_role: None,
            init_limit: None,
            sync_limit: None,
            settings: EnsembleConfig::new(ServerId(0), Membership::default()),
            ensemble_only: Vec::new(),
        }
    }
}

impl MembersDraft {
    /// Returns whether this is an ensemble, by Apache's rule: a single participant is one only if
    /// `standaloneEnabled=false`.
    fn is_ensemble(&self) -> bool {
        !self.members.is_empty() && (!self.standalone_enabled || self.count().0 > 1)
    }

    /// Returns the numbers of participants and observers.
    fn count(&self) -> (usize, usize) {
        let observers =
            self.members.iter().filter(|(_, member)| member.role == PeerRole::Observer).count();
        (self.members.len() - observers, observers)
    }

    /// Returns this server's line: its own in an ensemble, else the only one.
    fn me(&self) -> Option<&Member> {
        if self.is_ensemble() {
            let my_id = self.settings.my_id;
            return self.members.iter().find(|(id, _)| *id == my_id).map(|(_, member)| member);
        }
        match &self.members[..] {
            [(_, only)] => Some(only),
            _ => None,
        }
    }
}

/// Returns whether a key is part of the membership.
pub(crate) fn is_membership(key: &str) -> bool {
    ["server.", "group.", "weight."].iter().any(|prefix| key.starts_with(prefix))
}

/// Handles a `server.N` line.
pub(crate) fn add_member(draft: &mut Draft, setting: &Setting) -> Result<(), ValueError> {
    let id = setting.key.strip_prefix("server.").unwrap_or(&setting.key);
    let id = id
        .parse::<i64>()
        .ok()
        .filter(|id| *id >= 0)
        .map(ServerId)
        .ok_or_else(|| ValueError::NoServerId { id: id.to_owned() })?;
    let member = Member::parse(&setting.value).map_err(ValueError::NoMember)?;
    if draft.members.members.iter().any(|(other, _)| *other == id) {
        return Err(ValueError::RepeatedServer { id });
    }
    draft.members.members.push((id, member));
    Ok(())
}

/// Handles a `group.N` or `weight.N` line.
pub(crate) fn add_quorum_line(draft: &mut Draft, setting: &Setting) -> Result<(), ValueError> {
    // The line is checked on its own here; all lines are checked together at the end.
    Membership::parse(&format!("{}={}", setting.key, setting.value))
        .map_err(|error| ValueError::NoQuorumLine(error.what))?;
    draft.members.quorum_lines.push(setting.clone());
    Ok(())
}

/// Handles `peerType`.
pub(crate) fn set_peer_role(draft: &mut Draft, setting: &Setting) -> Result<(), ValueError> {
    let role = if setting.value.eq_ignore_ascii_case("participant") {
        PeerRole::Participant
    } else if setting.value.eq_ignore_ascii_case("observer") {
        PeerRole::Observer
    } else {
        return Err(ValueError::UnknownRole { value: setting.value.clone() });
    };
    draft.members.peer_role = Some((role, setting.clone()));
    Ok(())
}

impl Draft {
    /// Decides the kind of server. `my_id` is the text of the file `myid`, `next` the text of the
    /// proposed membership, `version` the version of the committed membership.
    pub(crate) fn decide_members(
        &mut self,
        my_id: Option<&str>,
        next: Option<&str>,
        version: Option<i64>,
    ) {
        let (participants, observers) = self.members.count();
        let first = self.members.members.first().map(|(id, _)| *id);
        let first = first.and_then(|id| self.member_setting(id));
        if self.members.is_ensemble() {
            return self.decide_ensemble(my_id, next, version);
        }
        if observers > 0 {
            let message = match participants {
                0 => "observers need an ensemble to observe, and no server votes",
                _ => {
                    "observers need an ensemble to observe, and one server on its own is none. Set \
                     standaloneEnabled to false to make it an ensemble of one"
                }
            };
            return self.conflict(first.as_ref(), message);
        }
        if !self.members.standalone_enabled {
            let setting = self.in_force("standaloneEnabled");
            return self.conflict(
                setting.as_ref(),
                "false asks for an ensemble even of one server, and there is no server line: add \
                 server.1=<host>:2888:3888, or set it to true",
            );
        }
        for setting in std::mem::take(&mut self.members.ensemble_only) {
            self.ensemble_only(&setting);
        }
        if let Some(setting) = first {
            self.ensemble_only(&setting);
            if self.members.me().is_some_and(|member| member.secure_client.is_some()) {
                self.not_yet(&setting, Feature::Tls);
            }
        }
    }

    fn decide_ensemble(&mut self, my_id: Option<&str>, next: Option<&str>, version: Option<i64>) {
        for (key, limit) in
            [("initLimit", self.members.init_limit), ("syncLimit", self.members.sync_limit)]
        {
            if limit.is_none() && !self.has_problem_with(key) {
                self.missing(
                    None,
                    format!("{key} is not set, and an ensemble needs it: add a line"),
                );
            }
        }
        if self.members.count().0 == 0 {
            self.conflict(None, "no server votes: at least one must not be an observer");
        }
        if !self.members.multi_address
            && let Some((id, _)) =
                self.members.members.iter().find(|(_, member)| member.addresses.len() > 1)
        {
            let setting = self.member_setting(*id);
            self.conflict(
                setting.as_ref(),
                "several addresses for one server need multiAddress.enabled=true",
            );
        }
        let mut text = String::new();
        for (id, member) in &self.members.members {
            text.push_str(&format!("server.{id}={member}\n"));
        }
        for line in &self.members.quorum_lines {
            text.push_str(&format!("{}={}\n", line.key, line.value));
        }
        let membership = Membership::parse(&text).map_err(|error| error.what);
        let settings = &mut self.members.settings;
        match membership {
            Ok(membership) => settings.membership = membership,
            Err(what) => self.conflict(None, format!("the servers are not an ensemble: {what}")),
        }
        let settings = &mut self.members.settings;
        settings.membership.version = version.unwrap_or(0);
        settings.init_limit = self.members.init_limit.unwrap_or(settings.init_limit);
        settings.sync_limit = self.members.sync_limit.unwrap_or(settings.sync_limit);
        settings.read_only = self.read_only_mode;
        settings.standalone_enabled = self.members.standalone_enabled;
        match next.map(Membership::parse) {
            None => {}
            Some(Ok(next)) if next.version > settings.membership.version => {
                settings.proposed = Some(next);
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                self.syntax(None, format!("in the file with the proposed members: {error}"));
            }
        }
        self.decide_my_id(my_id);
        let settings = self.members.settings.clone();
        if let Some(me) = settings.me()
            && let Some((role, setting)) = self.members.peer_role.take()
            && role != me.role
        {
            self.adjusted(&setting, "the server line says otherwise, and it counts");
        }
        if settings.me().is_some_and(|me| me.secure_client.is_some())
            && let Some(setting) = self.member_setting(settings.my_id)
        {
            self.not_yet(&setting, Feature::Tls);
        }
        self.config.ensemble = Some(settings);
    }

    fn decide_my_id(&mut self, my_id: Option<&str>) {
        let Some(text) = my_id else {
            let dir = self.data_dir.clone().unwrap_or_else(|| "dataDir".into());
            let file = dir.join("myid");
            let first = self.members.members.first().map_or(1, |(id, _)| id.0);
            let message = format!(
                "the file {0} is missing: write the number of this server into it, as in \
                 server.<number>, for instance with `echo {first} > {0}`",
                file.display()
            );
            return self.missing(None, message);
        };
        let line = text.lines().next().unwrap_or_default().trim();
        match line.parse::<i64>().ok().filter(|id| *id >= 0) {
            Some(id) => self.members.settings.my_id = ServerId(id),
            None => self.syntax(
                None,
                format!(
                    "the file myid in dataDir must hold a number and nothing else, not {line:?}"
                ),
            ),
        }
    }

    pub(crate) fn member_setting(&self, id: ServerId) -> Option<Setting> {
        self.in_force(&format!("server.{id}"))
    }

    /// Returns the number that session ids begin with: the id of the member, or of the only server
    /// line.
    pub(crate) fn own_number(&self) -> Option<ServerId> {
        match (&self.config.ensemble, &self.members.members[..]) {
            (Some(ensemble), _) => Some(ensemble.my_id),
            (None, [(only, _)]) => Some(*only),
            _ => None,
        }
    }

    pub(crate) fn decide_client_address(&mut self) {
        let written =
            self.client_port.map(|port| ListenAddress { host: self.client_host.clone(), port });
        if written.is_none()
            && self.client_host.is_some()
            && let Some(setting) = self.in_force("clientPortAddress")
        {
            return self.missing(
                Some(&setting),
                "clientPort is missing: an address needs a port to go with it",
            );
        }
        let of_member = self.members.me().and_then(|me| me.client.as_ref());
        let of_member = of_member
            .map(|client| ListenAddress { host: Some(client.host.clone()), port: client.port });
        if let (Some(written), Some(of_member)) = (&written, &of_member) {
            let same = if written.is_wildcard() {
                written.port == of_member.port
            } else {
                written == of_member
            };
            if !same {
                let setting = self.in_force("clientPort");
                let message = format!(
                    "clients are to connect to {written} here but to {of_member} in the server \
                     line; make them agree or remove one"
                );
                return self.conflict(setting.as_ref(), message);
            }
        }
        match of_member.or(written) {
            Some(address) => self.config.client_address = address,
            None if self.has_problem_with("clientPort") => {}
            None if self.in_force("secureClientPort").is_some() => {}
            None => self.missing(None, "clientPort is not set: add a line such as clientPort=2181"),
        }
        self.decide_secure_address();
    }

    fn decide_secure_address(&mut self) {
        if let Some(secure) = self.in_force("secureClientPort") {
            if self.client_port.is_none() && self.members.me().is_none_or(|me| me.client.is_none())
            {
                self.conflict(
                    Some(&secure),
                    "it is the only port, and this version of Ironkeeper does not have TLS yet. \
                     Set clientPort to serve clients without encryption, if the network allows \
                     for it",
                );
            } else {
                self.not_yet(&secure, Feature::Tls);
            }
        }
        if let Some(address) = self.in_force("secureClientPortAddress") {
            if self.in_force("secureClientPort").is_some() {
                self.not_yet(&address, Feature::Tls);
            } else {
                self.missing(
                    Some(&address),
                    "secureClientPort is missing: an address needs a port to go with it",
                );
            }
        }
    }
}
