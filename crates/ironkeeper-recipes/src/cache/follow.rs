//! How one node is followed: read and watched, and read again whatever the watch says.
//!
//! One-shot watches outlive reconnects, and the server makes up for what happened meanwhile, so that
//! nothing has to be read again that has not changed.

use ironkeeper_client::{Client, Error, ErrorKind, Node};

use crate::place::patient;

/// Tells of every state of the node that is seen, the present one first; `None` is a node that is not
/// there. Ends only with an error: the end of the session, or a refusal of the server.
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
            // An event, or a watch that somebody removed: either way the node is looked at again.
            _ => {}
        }
    }
}
