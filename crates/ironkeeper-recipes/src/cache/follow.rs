//! Following one node: read and watch it, and read it again after every event.
//!
//! The client sets one-shot watches again after a reconnect, and the server sends the events that
//! were missed meanwhile, so a node that has not changed is not read again.

use ironkeeper_client::{Client, Error, ErrorKind, Node};

use crate::place::patient;

/// Calls `seen` with every state of the node that it reads, the present one first; `None` means
/// that the node does not exist. Returns only with an error: the session has ended, or the server
/// rejects the reads.
pub(crate) async fn follow(
    client: &Client,
    path: &str,
    mut seen: impl FnMut(Option<Node>),
) -> Error {
    loop {
        let watch = match client.retry(&patient(), || client.get_and_watch(path)).await {
            Ok((node, watch)) => {
                seen(Some(node));
                watch
            }
            Err(error) if error.kind() == ErrorKind::NoNode => {
                match client.retry(&patient(), || client.exists_and_watch(path)).await {
                    Ok((None, watch)) => {
                        seen(None);
                        watch
                    }
                    // Created in between.
                    Ok((Some(_), _)) => continue,
                    Err(error) => return error,
                }
            }
            Err(error) => return error,
        };
        match watch.await {
            Err(error) if error.is_session_over() => return error,
            // An event, or a watch that was removed: either way the node is read again.
            _ => {}
        }
    }
}
