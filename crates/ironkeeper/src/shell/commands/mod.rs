//! The commands, one file each. To add one: write its file with a `COMMAND`, and name it here twice.

mod add_auth;
mod add_watch;
mod close;
mod config;
mod connect;
mod cp;
mod create;
mod delete;
mod deleteall;
mod delquota;
mod diff;
mod du;
mod edit;
mod export;
mod find;
mod get;
mod get_acl;
mod get_all_children_number;
mod get_ephemerals;
mod grep;
mod help;
mod history;
mod import;
mod listquota;
mod ls;
mod mv;
mod printwatches;
mod quit;
mod reconfig;
mod redo;
mod removewatches;
mod set;
mod set_acl;
mod setquota;
mod stat;
mod sync;
mod top;
mod tree;
mod version;
mod watch;
mod whoami;

use ironkeeper_client::{Acl, Version};
use serde::Serialize;

use super::acl_text;
use super::command::Command;
use super::context::Context;
use super::failure::{Failure, Outcome};
use super::options::Arguments;

/// Every command, sorted by name.
pub const ALL: &[&Command] = &[
    &add_watch::COMMAND,
    &add_auth::COMMAND,
    &close::COMMAND,
    &config::COMMAND,
    &connect::COMMAND,
    &cp::COMMAND,
    &create::COMMAND,
    &delete::COMMAND,
    &deleteall::COMMAND,
    &delquota::COMMAND,
    &diff::COMMAND,
    &du::COMMAND,
    &edit::COMMAND,
    &export::COMMAND,
    &find::COMMAND,
    &get::COMMAND,
    &get_acl::COMMAND,
    &get_all_children_number::COMMAND,
    &get_ephemerals::COMMAND,
    &grep::COMMAND,
    &help::COMMAND,
    &history::COMMAND,
    &import::COMMAND,
    &listquota::COMMAND,
    &ls::COMMAND,
    &mv::COMMAND,
    &printwatches::COMMAND,
    &quit::COMMAND,
    &reconfig::COMMAND,
    &redo::COMMAND,
    &removewatches::COMMAND,
    &set::COMMAND,
    &set_acl::COMMAND,
    &setquota::COMMAND,
    &stat::COMMAND,
    &sync::COMMAND,
    &top::COMMAND,
    &tree::COMMAND,
    &version::COMMAND,
    &watch::COMMAND,
    &whoami::COMMAND,
];

/// Whether a watch was asked for: by `-w`, or by any word behind the path, which is the form of ZooKeeper 3.4.
fn watch_wanted(context: &Context, arguments: &Arguments, usage: &str) -> Outcome<bool> {
    let older = arguments.words().len() > 1;
    if older {
        let name = arguments.name();
        context.out.note(format!(
            "'{name} path [watch]' has been deprecated. Please use '{usage}' instead."
        ))?;
    }
    Ok(older || arguments.has("w"))
}

/// Reads an access control list as it was typed; what is wrong with it is said, and the rest taken.
fn acl(context: &Context, text: &str) -> Outcome<Vec<Acl>> {
    let mut said = Ok(());
    let list = acl_text::parse(text, |complaint| {
        said = std::mem::replace(&mut said, Ok(())).and(context.out.note(complaint));
    });
    said?;
    if list.is_empty() {
        return Err(Failure::message("Acl is not valid : null"));
    }
    Ok(list)
}

/// What a command that only does something prints in JSON: that it was done, and to which node.
#[derive(Serialize)]
struct Done<'a> {
    done: &'static str,
    path: &'a str,
}

/// Text mode says nothing, as zkCli.
fn done(context: &Context, what: &'static str, path: &str) -> Outcome {
    if context.out.is_json() { context.out.emit_json(&Done { done: what, path }) } else { Ok(()) }
}

/// The version a change is bound to: `-v`, or in the form of ZooKeeper 3.4 the word at this place.
fn version(arguments: &Arguments, at: usize) -> Outcome<Version> {
    let text = arguments.value("v").or(arguments.word(at));
    match text.map(str::parse::<i32>) {
        // zkCli's "any version", typed.
        None | Some(Ok(-1)) => Ok(Version::Any),
        Some(Ok(version)) => Ok(Version::from(version)),
        Some(Err(_)) => {
            Err(Failure::bad_usage(format!("not a version: {}", text.unwrap_or_default())))
        }
    }
}
