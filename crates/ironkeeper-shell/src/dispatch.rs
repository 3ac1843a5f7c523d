//! Parses a line, runs its command and sets the status.

use ironkeeper_client::ErrorKind;

use super::command;
use super::context::Context;
use super::failure::{Failure, Outcome};
use super::hints;
use super::options::Arguments;
use super::output::Output;
use super::words;

/// Runs a typed line and prints its error, if any. Sets the status in the context; an empty line
/// does not change it.
pub async fn run_line(context: &mut Context, line: &str) {
    if line.trim().is_empty() {
        return;
    }
    context.history.push(line.to_owned());
    let mut line = line.to_owned();
    loop {
        match words::split(&line) {
            Ok(words) => run_words(context, &words).await,
            Err(error) => report(context, &Failure::message(error.to_string()), ""),
        }
        // The history contains the repeated command instead of the redo.
        match context.again.take() {
            Some(again) => {
                context.history.replace_last(again.clone());
                line = again;
            }
            None => return,
        }
    }
}

/// Runs a command given as words.
pub async fn run_words(context: &mut Context, words: &[String]) {
    let name = words.first().map_or("", String::as_str);
    let Some(command) = command::find(name) else {
        return report(context, &Failure::UnknownCommand(name.to_owned()), "");
    };
    let usage = command.usage_line();
    let mut arguments = match Arguments::parse(words, command.options) {
        Ok(arguments) => arguments,
        Err(failure) => return report(context, &failure, &usage),
    };
    arguments.directory.clone_from(&context.directory);
    let before = Manner::of(context);
    context.out = context.out.with_json(context.out.is_json() || arguments.json);
    context.yes |= arguments.yes;
    let outcome = match arguments.help {
        true => context.out.emit(&command::Help(command)),
        false => (command.run)(context, &arguments).await,
    };
    let outcome = outcome.and(context.out.flush());
    let hint = match &outcome {
        Err(failure) if !context.is_script() => hints::of(context, command, failure).await,
        _ => None,
    };
    finish(context, outcome, &usage);
    if let Some(hint) = hint {
        // A closed standard error must not change the status.
        let _ = context.hint(hint);
    }
    before.restore(context);
}

/// The settings of the context that `--json` and `--yes` change for a single command. A caller that
/// drops a command before its end must restore them; otherwise the next command would not ask
/// before it deletes.
pub struct Manner {
    out: Output,
    yes: bool,
}

impl Manner {
    pub fn of(context: &Context) -> Manner {
        Manner { out: context.out.clone(), yes: context.yes }
    }

    pub fn restore(self, context: &mut Context) {
        (context.out, context.yes) = (self.out, self.yes);
    }
}

fn finish(context: &mut Context, outcome: Outcome, usage: &str) {
    match outcome {
        // `quit` keeps the status of the previous command.
        Ok(()) if context.quit => {}
        Ok(()) => context.status = 0,
        // A clearer message if the session was never connected.
        Err(Failure::Client(error))
            if error.kind() == ErrorKind::ConnectionLoss && !context.session.was_connected() =>
        {
            let text = context.session.cannot_connect();
            report(context, &Failure::message(text), usage);
        }
        Err(failure) => report(context, &failure, usage),
    }
}

/// Prints a failure, unless the output is closed, and sets its status.
pub fn report(context: &mut Context, failure: &Failure, usage: &str) {
    context.status = failure.exit_code();
    if context.first_failure == 0 {
        context.first_failure = context.status;
    }
    if matches!(failure, Failure::OutputClosed) {
        context.quit = true;
    }
    if !failure.is_silent() {
        context.out.error(failure, usage);
    }
}
