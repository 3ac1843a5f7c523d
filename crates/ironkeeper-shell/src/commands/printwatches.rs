//! `printwatches`: enables or disables the printing of events.

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::Outcome;
use crate::options::Arguments;
use crate::output::Message;

pub const COMMAND: Command = Command {
    name: "printwatches",
    aliases: &[],
    usage: "on|off",
    summary: "Print events, or do not.",
    group: Group::ZkCli,
    options: &[],
    examples: &["printwatches off"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let events = context.session.events();
    match arguments.word(0) {
        Some(word) => {
            events.print(word == "on");
            Ok(())
        }
        None => {
            let word = if events.are_printed() { "on" } else { "off" };
            context.out.emit(&Message::new(format!("printwatches is {word}")))
        }
    }
}
