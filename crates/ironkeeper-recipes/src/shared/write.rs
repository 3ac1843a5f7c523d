//! Writes that are applied once, and report whether they were.

use ironkeeper_client::{Client, CreateMode, ErrorKind, Happened, Stat, Version, Zxid};

use crate::error::{RecipeError, Result};
use crate::place::{create_containers, patient};

/// The state of the node that a write is conditional on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Upon {
    /// The node does not exist, and is to be created.
    Nothing,
    /// The node has this version and this czxid.
    Version(i32, Zxid),
}

impl Upon {
    pub(crate) fn stat(stat: &Stat) -> Upon {
        Upon::Version(stat.version, stat.czxid)
    }
}

/// The result of a write.
#[derive(Debug)]
pub(crate) enum Written {
    /// It was applied.
    Yes(Stat),
    /// Another client wrote first.
    No,
}

/// Rejects version -1: in a request it means any version, so no write can be conditional on it.
pub(crate) fn refuse_wild_version(path: &str, version: i32) -> Result<()> {
    if version != -1 {
        return Ok(());
    }
    Err(RecipeError::Malformed {
        path: path.to_owned(),
        why: "the version of the node has come to -1, on which no write can be conditional; write it \
              once without a condition"
            .to_owned(),
    })
}

/// Writes if the node is in the state `upon`. After a lost reply the write is repeated. If its
/// condition fails then, other data in the next version proves that another client was first.
/// Otherwise (a later version, or the same bytes, which another client may have written) the error
/// is the lost connection, with [`Happened::Maybe`].
pub(crate) async fn write_once(
    client: &Client,
    path: &str,
    data: &[u8],
    upon: Upon,
) -> Result<Written> {
    if let Upon::Version(version, _) = upon {
        refuse_wild_version(path, version)?;
    }
    let mut doubt = None;
    loop {
        let done = match upon {
            Upon::Nothing => {
                client.create_with(path, data, &CreateMode::Persistent.into()).await.map(|c| c.stat)
            }
            Upon::Version(version, _) => client.set(path, data, version).await,
        };
        let error = match done {
            Ok(stat) => return Ok(Written::Yes(stat)),
            Err(error) => error,
        };
        match (error.kind(), upon) {
            (ErrorKind::NoNode, Upon::Nothing) => create_containers(client, path).await?,
            (ErrorKind::NodeExists, Upon::Nothing)
            | (ErrorKind::BadVersion | ErrorKind::NoNode, Upon::Version(..)) => {
                let Some(lost) = doubt else { return Ok(Written::No) };
                return match client.retry(&patient(), || client.get(path)).await {
                    Ok(node) if is_by_another(&node.stat, &node.data, data, upon) => {
                        Ok(Written::No)
                    }
                    Ok(_) => Err(RecipeError::Client(lost)),
                    Err(error) if error.kind() == ErrorKind::NoNode => {
                        Err(RecipeError::Client(lost))
                    }
                    Err(error) => Err(error.into()),
                };
            }
            _ if error.is_retriable() => {
                if error.happened() == Happened::Maybe {
                    doubt = Some(error);
                }
                // Waits for the next connection.
                client.retry(&patient(), || client.sync(path)).await?;
            }
            _ => return Err(error.into()),
        }
    }
}

/// Writes unconditionally. Returns `None` if the node does not exist. After a lost reply it reads
/// whether the write was applied, because a repetition might overwrite later writes of other
/// clients; where that is unknown, the error is the lost connection, with [`Happened::Maybe`].
pub(crate) async fn overwrite(client: &Client, path: &str, data: &[u8]) -> Result<Option<Stat>> {
    loop {
        let before = client.retry(&patient(), || client.exists(path)).await?;
        let Some(before) = before else { return Ok(None) };
        let lost = match client.set(path, data, Version::Any).await {
            Ok(stat) => return Ok(Some(stat)),
            Err(error) if error.kind() == ErrorKind::NoNode => return Ok(None),
            Err(error) if error.is_retriable() => error,
            Err(error) => return Err(error.into()),
        };
        client.retry(&patient(), || client.sync(path)).await?;
        if lost.happened() != Happened::Maybe {
            continue;
        }
        let node = match client.retry(&patient(), || client.get(path)).await {
            Ok(node) => node,
            Err(error) if error.kind() == ErrorKind::NoNode => return Err(lost.into()),
            Err(error) => return Err(error.into()),
        };
        let is_untouched = node.stat.mzxid == before.mzxid;
        // If another client wrote the same bytes, the result is the same.
        if node.data == data && !is_untouched {
            return Ok(Some(node.stat));
        }
        if !is_untouched && !is_by_another(&node.stat, &node.data, data, Upon::stat(&before)) {
            return Err(lost.into());
        }
    }
}

/// Does the same as [`overwrite`], and creates the node if it does not exist.
pub(crate) async fn overwrite_or_create(client: &Client, path: &str, data: &[u8]) -> Result<()> {
    loop {
        if overwrite(client, path, data).await?.is_some() {
            return Ok(());
        }
        match write_once(client, path, data, Upon::Nothing).await {
            Ok(Written::Yes(_)) => return Ok(()),
            Ok(Written::No) => {}
            Err(RecipeError::Client(lost)) if lost.happened() == Happened::Maybe => {
                // If another client wrote the same bytes, the result is the same.
                return match client.retry(&patient(), || client.get(path)).await {
                    Ok(node) if node.data == data => Ok(()),
                    _ => Err(lost.into()),
                };
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns whether the first write after the state `upon` was certainly made by another client.
fn is_by_another(stat: &Stat, found: &[u8], ours: &[u8], upon: Upon) -> bool {
    let is_next_write = match upon {
        Upon::Nothing => stat.version == 0,
        Upon::Version(version, czxid) => {
            stat.czxid == czxid && stat.version == version.wrapping_add(1)
        }
    };
    is_next_write && found != ours
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_other_data_right_behind_the_known_state_is_certainly_not_ours() {
        let stat = Stat { version: 8, czxid: Zxid(3), ..Stat::default() };
        let upon = Upon::Version(7, Zxid(3));
        assert!(is_by_another(&stat, b"theirs", b"ours", upon));
        assert!(!is_by_another(&stat, b"same", b"same", upon));
        let later = Stat { version: 9, ..stat };
        assert!(!is_by_another(&later, b"theirs", b"ours", upon));
        let recreated = Stat { czxid: Zxid(5), ..stat };
        assert!(!is_by_another(&recreated, b"theirs", b"ours", upon));
    }

    #[test]
    fn curator_688_a_version_beyond_the_largest_is_written_on() {
        let after = Stat { version: i32::MIN, czxid: Zxid(3), ..Stat::default() };
        assert!(is_by_another(&after, b"theirs", b"ours", Upon::Version(i32::MAX, Zxid(3))));
        assert!(refuse_wild_version("/v", i32::MIN).is_ok());
        assert!(refuse_wild_version("/v", -1).is_err());
    }
}
