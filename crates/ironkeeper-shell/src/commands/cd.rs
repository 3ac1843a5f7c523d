//! `cd`: sets the node that relative paths start from.

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::options::Arguments;
use crate::path_form;

pub const COMMAND: Command = Command {
    name: "cd",
    aliases: &[],
    usage: "[path]",
    summary: "Choose the node at which relative paths begin; without a path: the root.",
    group: Group::More,
    options: &[],
    examples: &["cd /app", "cd .."],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let path = match arguments.word(0) {
        None => "/".to_owned(),
        // The first relative path starts from the root.
        Some(word) if context.directory.is_none() && !word.starts_with('/') => {
            path_form::join("/", word)
        }
        Some(_) => arguments.path(0)?,
    };
    if context.client()?.exists(&path).await?.is_none() {
        return Err(Failure::message(format!("Node does not exist: {path}")));
    }
    context.directory = Some(path);
    Ok(())
}
