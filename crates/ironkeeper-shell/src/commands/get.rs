//! `get`: prints the data of a node.

use std::fmt::{self, Display};

use serde::Serialize;

use crate::command::{Command, Group};
use crate::context::Context;
use crate::data_text::{DataText, Form, as_text};
use crate::failure::{Failure, Outcome};
use crate::options::{Arguments, Opt};
use crate::stat_text::StatText;

pub const COMMAND: Command = Command {
    name: "get",
    aliases: &[],
    usage: "[-s] [-w] [-b] [-x] path",
    summary: "Show the data of a node: as text, or as bytes if it is not text.",
    group: Group::ZkCli,
    options: &[
        Opt::flag("s", "show the node's Stat as well"),
        Opt::flag("w", "tell of the next change of the node"),
        Opt::flag("b", "show the data in base64"),
        Opt::flag("x", "show the data as a table of bytes"),
        Opt::flag("raw", "write the bytes of the data as they are, without a line end"),
    ],
    examples: &["get -s /app", "get -w /app", "get -raw /app/image"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let path = &*arguments.path(0)?;
    let raw = arguments.has("raw");
    if raw && (context.out.is_json() || ["s", "b", "x"].iter().any(|name| arguments.has(name))) {
        return Err(Failure::bad_usage("-raw cannot be combined with --json, -s, -b or -x"));
    }
    let watch = super::watch_wanted(context, arguments, "get [-s] [-w] path")?;
    let client = context.client()?;
    let node = if watch {
        let (node, watch) = client.get_and_watch(path).await?;
        context.session.watches.once_of_data(path, watch);
        node
    } else {
        client.get(path).await?
    };
    if raw {
        return context.out.raw(&node.data);
    }
    let form = match (arguments.has("x"), arguments.has("b")) {
        (true, _) => Form::Hex,
        (_, true) => Form::Base64,
        _ => Form::Auto,
    };
    let stat = (arguments.has("s") || context.out.is_json()).then_some(StatText(node.stat));
    let data = (!node.is_null()).then_some(&*node.data);
    context.out.emit(&Found { path, data: DataText { data, form }, stat })?;
    let is_shown_as_bytes = form == Form::Auto && data.is_some_and(|data| as_text(data).is_none());
    match is_shown_as_bytes && !context.terminal.stdout {
        true => context.hint("The data is not text; get -raw writes the bytes as they are."),
        false => Ok(()),
    }
}

#[derive(Serialize)]
struct Found<'a> {
    path: &'a str,
    #[serde(flatten)]
    data: DataText<'a>,
    stat: Option<StatText>,
}

impl Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.data)?;
        match &self.stat {
            Some(stat) => write!(f, "\n{stat}"),
            None => Ok(()),
        }
    }
}
