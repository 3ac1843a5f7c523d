//! The interactive shell: a prompt with history and completion, and events printed above it.
//!
//! The [`LineEditor`] has its own thread; the session, its pings and its watches run on the runtime
//! of the main thread.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::line_editor::{self, LineEditor, Typed};

use super::complete::ShellHelper;
use super::context::Context;
use super::dispatch::{Manner, report, run_line};
use super::failure::Failure;
use super::prompt::LivePrompt;

/// How long the first prompt waits for the connection, so that it usually shows the connected
/// state.
const CONNECTED_WITHIN: Duration = Duration::from_secs(1);

/// Runs until `quit` or the end of the input.
pub async fn run(context: &mut Context) {
    let (out, colour) = (context.out.clone(), context.terminal.colour());
    let helper = ShellHelper::new(Handle::current(), context.session.shared_client(), colour);
    let history =
        line_editor::variable("IRONKEEPER_HISTORY").or_else(|| line_editor::state_file("history"));
    // Credentials must not be written to a file.
    let settings =
        line_editor::Settings { history, is_kept: |line| !has_credentials(line), colour };
    let mut editor =
        LineEditor::start(helper, settings, move |printer| out.print_above_prompt(printer));

    // From now on Ctrl-C ends commands, not the shell. At the prompt the line editor reads it as a
    // key.
    let mut interrupts = signal(SignalKind::interrupt()).ok();
    // Without a connection the prompt shows that state.
    let _ = context.session.wait_connected(CONNECTED_WITHIN).await;
    while !context.quit {
        let directory = context.directory.as_deref().unwrap_or_default();
        let prompt = LivePrompt::new(&context.session, directory, context.history.count());
        match editor.line(prompt).await {
            Typed::Line(line) => {
                // An interrupted command is dropped at its current await; requests already sent are
                // not undone.
                let before = Manner::of(context);
                let interrupted = tokio::select! {
                    // Polled first, so that a command that is interrupted immediately is still in
                    // the history.
                    biased;
                    () = run_line(context, &line) => false,
                    () = next_interrupt(&mut interrupts) => true,
                };
                if interrupted {
                    before.restore(context);
                    report(context, &Failure::Interrupted, "");
                }
            }
            Typed::Interrupted => {}
            Typed::End => break,
        }
    }
    editor.close();
}

/// Waits for SIGINT; never returns if no handler could be registered.
async fn next_interrupt(interrupts: &mut Option<Signal>) {
    match interrupts {
        Some(interrupts) => {
            interrupts.recv().await;
        }
        None => std::future::pending().await,
    }
}

fn has_credentials(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.next() == Some("addauth")
        || words
            .any(|word| word.trim_start_matches('-').starts_with("auth") && word.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::has_credentials;

    #[test]
    fn lines_with_credentials_are_known() {
        for line in [
            " addauth digest a:b",
            "cp -auth digest:a:b /x h:1/x",
            "diff /a h:1/a --auth=digest:a:b",
        ] {
            assert!(has_credentials(line), "{line}");
        }
        for line in ["", "get /addauth", "ls /auth", "create /a -a auth", "help addauth"] {
            assert!(!has_credentials(line), "{line}");
        }
    }
}
