//! The stat of a node, as clients see it and as snapshots store it.

use crate::ids::Zxid;
use crate::jute::{DecodeError, Put, Reader};

/// The owner value that marks a container node.
pub const CONTAINER_OWNER: i64 = i64::MIN;
/// The high byte that marks a TTL node's owner value; the low 40 bits are the TTL in milliseconds.
pub const TTL_OWNER: u64 = 0xff00_0000_0000_0000;
/// The largest TTL in milliseconds that can be encoded.
pub const TTL_MS_MAX: i64 = (1 << 40) - 1;

/// ZooKeeper's `Stat`, a record of 68 bytes: versions, times, transaction ids, owner and sizes of a
/// node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The transaction that created the node. It distinguishes two nodes that had the same path.
    pub czxid: Zxid,
    /// The transaction that changed the data last.
    pub mzxid: Zxid,
    /// When the node was created, in milliseconds since 1970, by the clock of the leader.
    pub ctime: i64,
    /// When the data was changed last, in milliseconds since 1970, by the clock of the leader.
    pub mtime: i64,
    /// The number of changes of the data. A conditional set or delete compares it.
    pub version: i32,
    /// The number of creations and deletions of children.
    pub cversion: i32,
    /// The number of changes of the ACL.
    pub aversion: i32,
    /// The id of the session that owns an ephemeral node; 0 for every other node.
    pub ephemeral_owner: i64,
    /// The number of bytes of the data.
    pub data_length: i32,
    /// The number of children.
    pub num_children: i32,
    /// The transaction that created or deleted a child last.
    pub pzxid: Zxid,
}

impl Stat {
    /// The length of the encoding in bytes.
    pub const ENCODED_LEN: usize = 68;

    /// Appends the encoding.
    #[inline]
    pub fn encode(&self, out: &mut impl Put) {
        let mut bytes = [0; Stat::ENCODED_LEN];
        bytes[0..8].copy_from_slice(&self.czxid.0.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.mzxid.0.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.ctime.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.mtime.to_be_bytes());
        bytes[32..36].copy_from_slice(&self.version.to_be_bytes());
        bytes[36..40].copy_from_slice(&self.cversion.to_be_bytes());
        bytes[40..44].copy_from_slice(&self.aversion.to_be_bytes());
        bytes[44..52].copy_from_slice(&self.ephemeral_owner.to_be_bytes());
        bytes[52..56].copy_from_slice(&self.data_length.to_be_bytes());
        bytes[56..60].copy_from_slice(&self.num_children.to_be_bytes());
        bytes[60..68].copy_from_slice(&self.pzxid.0.to_be_bytes());
        out.put_raw(&bytes);
    }

    /// Decodes the record.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Stat, DecodeError> {
        Ok(Stat {
            czxid: Zxid(reader.i64()?),
            mzxid: Zxid(reader.i64()?),
            ctime: reader.i64()?,
            mtime: reader.i64()?,
            version: reader.i32()?,
            cversion: reader.i32()?,
            aversion: reader.i32()?,
            ephemeral_owner: reader.i64()?,
            data_length: reader.i32()?,
            num_children: reader.i32()?,
            pzxid: Zxid(reader.i64()?),
        })
    }
}

/// The 60-byte stat record of snapshots. `cversion` counts only creations of children, and
/// `ephemeral_owner` is the raw value, including the marks for containers and TTL nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatPersisted {
    /// The zxid that created the node.
    pub czxid: Zxid,
    /// The zxid that last set the data.
    pub mzxid: Zxid,
    /// When the node was created, in milliseconds since 1970.
    pub ctime: i64,
    /// When the data was last set, in milliseconds since 1970.
    pub mtime: i64,
    /// The number of times that the data was set.
    pub version: i32,
    /// The number of children that were created.
    pub cversion: i32,
    /// The number of times that the access control list was set.
    pub aversion: i32,
    /// The owning session, or a marker of the kind of node, see [`OwnerKind`].
    pub ephemeral_owner: i64,
    /// The zxid that last created or deleted a child.
    pub pzxid: Zxid,
}

impl StatPersisted {
    /// The length of the encoding in bytes.
    pub const ENCODED_LEN: usize = 60;

    /// Appends the encoding.
    pub fn encode(&self, out: &mut impl Put) {
        out.put_i64(self.czxid.0);
        out.put_i64(self.mzxid.0);
        out.put_i64(self.ctime);
        out.put_i64(self.mtime);
        out.put_i32(self.version);
        out.put_i32(self.cversion);
        out.put_i32(self.aversion);
        out.put_i64(self.ephemeral_owner);
        out.put_i64(self.pzxid.0);
    }

    /// Decodes the record.
    pub fn decode(reader: &mut Reader<'_>) -> Result<StatPersisted, DecodeError> {
        Ok(StatPersisted {
            czxid: Zxid(reader.i64()?),
            mzxid: Zxid(reader.i64()?),
            ctime: reader.i64()?,
            mtime: reader.i64()?,
            version: reader.i32()?,
            cversion: reader.i32()?,
            aversion: reader.i32()?,
            ephemeral_owner: reader.i64()?,
            pzxid: Zxid(reader.i64()?),
        })
    }

    /// Returns the stat for clients: `cversion` counts creations and deletions, and the owner is
    /// non-zero for plain ephemerals only. All servers derive both values in this way.
    #[inline]
    pub fn visible(&self, data_length: usize, num_children: u32, owner: OwnerKind) -> Stat {
        let children = num_children as i32;
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            cversion: self.cversion.wrapping_mul(2).wrapping_sub(children),
            aversion: self.aversion,
            ephemeral_owner: match owner {
                OwnerKind::Ephemeral => self.ephemeral_owner,
                _ => 0,
            },
            data_length: data_length as i32,
            num_children: children,
            pzxid: self.pzxid,
        }
    }
}

/// The kind of a node, as encoded in the raw owner value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerKind {
    /// A node that remains until it is deleted.
    Persistent,
    /// A node of a session.
    Ephemeral,
    /// A container.
    Container,
    /// The time to live in milliseconds after the last change.
    Ttl(i64),
}

impl OwnerKind {
    /// Decodes a raw owner value. `ttl`: TTL nodes are enabled (`extendedTypesEnabled`).
    /// `emulate_353`: the encoding of 3.5.3 is recognized as well.
    #[inline]
    pub fn of(owner: i64, ttl: bool, emulate_353: bool) -> OwnerKind {
        if owner == 0 {
            return OwnerKind::Persistent;
        }
        if owner == CONTAINER_OWNER {
            return OwnerKind::Container;
        }
        if ttl {
            if (owner as u64) & TTL_OWNER == TTL_OWNER {
                return OwnerKind::Ttl(owner & TTL_MS_MAX);
            }
            if emulate_353 && owner < 0 {
                return OwnerKind::Ttl(owner & i64::MAX);
            }
        }
        OwnerKind::Ephemeral
    }
}

/// Returns the raw owner value of a TTL node.
pub fn ttl_owner(ttl_ms: i64) -> i64 {
    (TTL_OWNER | (ttl_ms as u64 & TTL_MS_MAX as u64)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_cversion_counts_creations_and_deletions() {
        let fresh = StatPersisted::default();
        assert_eq!(fresh.visible(0, 1, OwnerKind::Persistent).cversion, -1);
        assert_eq!(fresh.visible(0, 2, OwnerKind::Persistent).cversion, -2);
    }

    #[test]
    fn owner_values_tell_the_kind_of_node() {
        assert_eq!(OwnerKind::of(0, true, false), OwnerKind::Persistent);
        assert_eq!(OwnerKind::of(CONTAINER_OWNER, false, false), OwnerKind::Container);
        assert_eq!(OwnerKind::of(ttl_owner(1500), true, false), OwnerKind::Ttl(1500));
        assert_eq!(OwnerKind::of(ttl_owner(1500), false, false), OwnerKind::Ephemeral);
        assert_eq!(OwnerKind::of(0x0100_0000_0000_0001, true, false), OwnerKind::Ephemeral);
    }

    #[test]
    fn stats_survive_a_round_trip() {
        let stat = Stat { czxid: Zxid(1), pzxid: Zxid(9), num_children: 4, ..Stat::default() };
        let mut bytes = Vec::new();
        stat.encode(&mut bytes);
        assert_eq!(bytes.len(), Stat::ENCODED_LEN);
        assert_eq!(Stat::decode(&mut Reader::new(&bytes)), Ok(stat));
        let persisted = StatPersisted { cversion: 3, mzxid: Zxid(7), ..StatPersisted::default() };
        bytes.clear();
        persisted.encode(&mut bytes);
        assert_eq!(bytes.len(), StatPersisted::ENCODED_LEN);
        assert_eq!(StatPersisted::decode(&mut Reader::new(&bytes)), Ok(persisted));
    }
}
