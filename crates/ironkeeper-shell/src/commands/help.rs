//! `help`: prints all commands, or the help of one.

use crate::command::{self, Command, Group, Help};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::options::Arguments;
use crate::output::Message;

pub const COMMAND: Command = Command {
    name: "help",
    aliases: &["?"],
    usage: "[command]",
    summary: "List the commands, or explain one.",
    group: Group::More,
    options: &[],
    examples: &["help create"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let Some(name) = arguments.word(0) else {
        if context.out.is_json() {
            return command::all().try_for_each(|command| context.out.emit(&Help(command)));
        }
        return context.out.emit(&Message::new(overview()));
    };
    let command = command::find(name).ok_or_else(|| Failure::UnknownCommand(name.to_owned()))?;
    context.out.emit(&Help(command))
}

/// Returns the list of all commands with their headlines.
fn overview() -> String {
    let mut text = String::from(
        "ironkeeper shell -server host:port[,...][/chroot] [-r] [--json] command args",
    );
    for (group, title) in [(Group::ZkCli, "As in zkCli:"), (Group::More, "And more:")] {
        text += &format!("\n\n{title}");
        for command in command::all().filter(|command| command.group == group) {
            text += &format!("\n  {:<22} {}", command.name, command.headline());
        }
    }
    text + "\n\nhelp command shows its options; every command takes --json."
}
