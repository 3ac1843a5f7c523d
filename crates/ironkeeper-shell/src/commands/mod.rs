//! The commands, one file each. To add a command: write its file with a `COMMAND`, and list it here
//! twice.

mod add_auth;
mod add_watch;
mod cd;
mod clear;
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
mod pwd;
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
use super::input_file;
use super::options::{Arguments, Opt};

pub use version::line as version_line;

/// All commands, sorted by name.
pub const ALL: &[&Command] = &[
    &add_watch::COMMAND,
    &add_auth::COMMAND,
    &cd::COMMAND,
    &clear::COMMAND,
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
    &pwd::COMMAND,
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

/// Returns whether a watch is requested: by `-w`, or by any word behind the path, which is the
/// syntax of ZooKeeper 3.4.
fn watch_wanted(context: &Context, arguments: &Arguments, usage: &str) -> Outcome<bool> {
    let older = arguments.words().len() > 1;
    if let Some(word @ ("|" | ">" | ">>")) = arguments.word(1) {
        let name = arguments.name();
        return Err(Failure::message(format!(
            "'{word}' has no meaning here; in the shell of the system use: ironkeeper shell \
             {name} ... {word} ..."
        )));
    }
    if older {
        let name = arguments.name();
        context.out.note(format!(
            "'{name} path [watch]' has been deprecated. Please use '{usage}' instead."
        ))?;
    }
    Ok(older || arguments.has("w"))
}

/// Parses an access control list. Any error in it fails the command before anything is changed.
fn acl(text: &str) -> Outcome<Vec<Acl>> {
    acl_text::parse(text).map_err(|complaints| {
        Failure::message(format!("{}\nAcl is not valid : null", complaints.join("\n")))
    })
}

/// The JSON output of a command without results: the action and the node.
#[derive(Serialize)]
struct Done<'a> {
    done: &'static str,
    path: &'a str,
}

/// Prints the JSON output of a command without results. In text mode nothing is printed, as in
/// zkCli.
fn done(context: &Context, what: &'static str, path: &str) -> Outcome {
    if context.out.is_json() { context.out.emit_json(&Done { done: what, path }) } else { Ok(()) }
}

/// The largest data that is read from a file. Servers accept a megabyte unless configured
/// otherwise.
const DATA_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The option that reads the data from a file.
const DATA_FILE: Opt =
    Opt::value("f", "file", "take the data from a file, from the input if it is -");

/// Returns the data of a node: the content of the file of `-f`, or the typed word. `None` if
/// neither is given.
async fn data(
    context: &Context,
    arguments: &Arguments,
    typed: Option<&str>,
) -> Outcome<Option<Vec<u8>>> {
    match (arguments.value("f"), typed) {
        (Some(_), Some(_)) => {
            Err(Failure::bad_usage("The data is typed, and -f names a file of data"))
        }
        (Some(file), None) => input_file::read(context, file, DATA_BYTES_MAX).await.map(Some),
        (None, typed) => Ok(typed.map(|text| text.as_bytes().to_vec())),
    }
}

/// Returns the expected version of a change: `-v`, or in the syntax of ZooKeeper 3.4 the word at
/// position `at`.
fn version(arguments: &Arguments, at: usize) -> Outcome<Version> {
    let text = arguments.value("v").or(arguments.word(at));
    match text.map(str::parse::<i32>) {
        // In zkCli, -1 means any version.
        None | Some(Ok(-1)) => Ok(Version::Any),
        Some(Ok(version)) => Ok(Version::from(version)),
        Some(Err(_)) => {
            Err(Failure::bad_usage(format!("not a version: {}", text.unwrap_or_default())))
        }
    }
}
