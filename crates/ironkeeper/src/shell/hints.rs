//! Advice behind the error of a command: what a person would look up next.

use std::time::Duration;

use ironkeeper_client::{ErrorKind, Stat};

use super::command::Command;
use super::context::Context;
use super::failure::Failure;

/// How long the look at the server may take.
const LOOKED_WITHIN: Duration = Duration::from_secs(2);

/// What there is to say about a failure, if anything is.
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

/// The chroot of the session, if it is not there: then every path seems to be missing.
async fn missing_chroot(context: &Context) -> Option<String> {
    let client = context.client().ok()?;
    let chroot = client.chroot();
    let is_missing = chroot != "/" && look(context, "/").await?.is_none();
    is_missing.then(|| chroot.to_owned())
}

/// `None` if the server does not answer, `Some(None)` if there is no such node.
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
