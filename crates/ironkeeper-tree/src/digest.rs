//! The digest of the tree: a sum of one CRC-32 per node, the same on every server.
//!
//! A node's CRC covers its path, its data and 60 bytes of stat, in this order. The tree keeps the
//! CRC of path and data ([`prefix_crc`]) with the node and adds the stat when it needs the whole
//! CRC, so that a create below a parent with large data does not read that data again.
//!
//! Nodes below `/zookeeper` are not part of the digest, because each server keeps its own quota
//! statistics. ACLs are not part of it either.

use ironkeeper_proto::stat::StatPersisted;

/// Returns whether a node's CRC is part of the tree's digest.
#[inline]
pub fn counts(path: &str) -> bool {
    !path.starts_with("/zookeeper/")
}

/// Returns the CRC of path and data. The root is hashed as the empty path, null data as empty data.
#[inline]
pub fn prefix_crc(path: &str, data: Option<&[u8]>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    if path != "/" {
        hasher.update(path.as_bytes());
    }
    hasher.update(data.unwrap_or_default());
    hasher.finalize()
}

/// Returns the CRC of a node, given the CRC of its path and data.
#[inline]
pub fn node_digest(prefix: u32, stat: &StatPersisted) -> u32 {
    let mut bytes = [0; 60];
    bytes[0..8].copy_from_slice(&stat.czxid.0.to_be_bytes());
    bytes[8..16].copy_from_slice(&stat.mzxid.0.to_be_bytes());
    bytes[16..24].copy_from_slice(&stat.pzxid.0.to_be_bytes());
    bytes[24..32].copy_from_slice(&stat.ctime.to_be_bytes());
    bytes[32..40].copy_from_slice(&stat.mtime.to_be_bytes());
    bytes[40..44].copy_from_slice(&stat.version.to_be_bytes());
    bytes[44..48].copy_from_slice(&stat.cversion.to_be_bytes());
    bytes[48..52].copy_from_slice(&stat.aversion.to_be_bytes());
    bytes[52..60].copy_from_slice(&stat.ephemeral_owner.to_be_bytes());
    let mut hasher = crc32fast::Hasher::new_with_initial(prefix);
    hasher.update(&bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use ironkeeper_proto::Zxid;

    use super::*;

    /// Expected values were recorded from Apache ZooKeeper 3.9.5.
    #[test]
    fn nodes_hash_as_apache_does() {
        let zero = StatPersisted::default();
        assert_eq!(node_digest(prefix_crc("/", Some(b"")), &zero), 0x0412_8908);
        assert_eq!(node_digest(prefix_crc("", None), &zero), 0x0412_8908);
        assert_eq!(node_digest(prefix_crc("/zookeeper", Some(b"")), &zero), 0x4db4_4d58);
        let zxid = Zxid(0x1_0000_0002);
        let root = StatPersisted { cversion: 1, pzxid: zxid, ..zero };
        assert_eq!(node_digest(prefix_crc("/", Some(b"")), &root), 0xeb02_e853);
        let time = 0x1a1_e057_d515;
        let node = StatPersisted {
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime: time,
            mtime: time,
            ..zero
        };
        assert_eq!(node_digest(prefix_crc("/a0", Some(b"data0")), &node), 0x342f_22ad);
    }

    #[test]
    fn only_what_is_below_zookeeper_is_left_out() {
        for (path, expected) in [
            ("/", true),
            ("/zookeeper", true),
            ("/zookeeper/config", false),
            ("/zookeeper/quota/a/zookeeper_stats", false),
            ("/zookeepers/a", true),
        ] {
            assert_eq!(counts(path), expected, "{path}");
        }
    }
}
