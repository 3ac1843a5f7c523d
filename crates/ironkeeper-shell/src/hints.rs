//! Advice printed after the error of a command: the most likely cause.

use std::time::Duration;

use ironkeeper_client::{ErrorKind, Stat};

use super::command::Command;
use super::context::Context;
use super::failure::Failure;

/// The timeout of the read that a hint needs.
const LOOKED_WITHIN: Duration = Duration::from_secs(2);

/// Returns the advice for a failure, if there is any.
pub async fn of(context: &Context, command: &Command, failure: &Failure) -> Option<String> {
    let Failure::Client(error) = failure else { return None };
    let path = error.path()?;
    match error.kind() {
        ErrorKind::NoNode => {
            if let Some(chroot) = missing_chroot(context).await {
                return Some(format!(
                    "The chroot {chroot} does not exist on the server; connect without it and \
                     use: create -p {chroot}"
                ));
            }
            let parent = parent_of(path)?;
            let is_missing = command.name == "create" && look(context, parent).await?.is_none();
            is_missing.then(|| format!("The parent {parent} does not exist; create -p creates it."))
        }
        ErrorKind::BadVersion => {
            let stat = look(context, path).await??;
            Some(match command.name {
                "setAcl" => format!("The version of its ACL is {}.", stat.aversion),
                _ => format!("The version of its data is {}.", stat.version),
            })
        }
        _ => None,
    }
}

/// Returns the chroot of the session if it does not exist; then every path appears to be missing.
async fn missing_chroot(context: &Context) -> Option<String> {
    let client = context.client().ok()?;
    let chroot = client.chroot();
    let is_missing = chroot != "/" && look(context, "/").await?.is_none();
    is_missing.then(|| chroot.to_owned())
}

/// Returns `None` if the server does not reply, `Some(None)` if the node does not exist.
async fn look(context: &Context, path: &str) -> Option<Option<Stat>> {
    let client = context.client().ok()?;
    tokio::time::timeout(LOOKED_WITHIN, client.exists(path)).await.ok()?.ok()
}

fn parent_of(path: &str) -> Option<&str> {
    match path.rsplit_once('/')? {
        ("", _) => None,
        (parent, _) => Some(parent),
    }
}
