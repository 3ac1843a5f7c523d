//! The interactive shell: a prompt with history and completion, and events above it.
//!
//! The line editor blocks, so it has a thread of its own; the session, its pings and watches live on the main
//! thread's runtime. A line travels from the editor to the runtime, and the next prompt back when the command
//! is done.

use std::path::PathBuf;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use rustyline::config::Configurer;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{ColorMode, CompletionType, Config, Editor};
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::complete::ShellHelper;
use super::context::Context;
use super::dispatch::{Manner, report, run_line};
use super::failure::Failure;

/// How long the first prompt waits for the connection, so that it usually shows one.
const CONNECTED_WITHIN: Duration = Duration::from_secs(1);
const HISTORY_LINES_MAX: usize = 1000;

/// What came of a prompt.
enum Typed {
    Line(String),
    /// Ctrl-C: the line is thrown away.
    Interrupted,
    /// Ctrl-D, or the terminal is gone.
    End,
}

/// Runs until `quit` or the end of the input.
pub async fn run(context: &mut Context) {
    let (prompts, prompt) = std_mpsc::channel();
    let (typed, mut lines) = mpsc::channel(1);
    let (out, colour) = (context.out.clone(), context.terminal.colour());
    let helper = ShellHelper::new(Handle::current(), context.session.shared_client(), colour);
    let editor = std::thread::spawn(move || {
        let mut editor = match editor(helper, colour) {
            Ok(editor) => editor,
            Err(error) => {
                eprintln!("cannot use the terminal: {error}");
                return;
            }
        };
        if let Ok(printer) = editor.create_external_printer() {
            out.print_above_prompt(Box::new(printer));
        }
        let saved = history_file();
        if let Some(file) = &saved {
            // Not there the first time.
            let _ = editor.load_history(file);
        }
        while let Ok(prompt) = prompt.recv() {
            let prompt: String = prompt;
            let result = match editor.readline(&prompt) {
                Ok(line) => {
                    remember(&mut editor, &line);
                    Typed::Line(line)
                }
                Err(ReadlineError::Interrupted) => Typed::Interrupted,
                Err(_) => Typed::End,
            };
            if typed.blocking_send(result).is_err() {
                break;
            }
        }
        if let Some(file) = &saved {
            // A home that cannot be written to costs the history, nothing else.
            let _ = file.parent().map(std::fs::create_dir_all);
            let _ = editor.save_history(file);
        }
    });

    // From now on Ctrl-C ends commands, not the shell. At the prompt it is a key like any other.
    let mut interrupts = signal(SignalKind::interrupt()).ok();
    // Without a connection the prompt says so.
    let _ = context.session.wait_connected(CONNECTED_WITHIN).await;
    while !context.quit {
        let prompt = format!(
            "[zk: {}({}){} {}] ",
            context.session.prompt_name(),
            context.session.state_word(),
            context.directory.as_deref().unwrap_or_default(),
            context.history.count()
        );
        if prompts.send(prompt).is_err() {
            break;
        }
        match lines.recv().await {
            Some(Typed::Line(line)) => {
                // A command that is interrupted is dropped where it stands; requests already sent are not
                // taken back.
                let before = Manner::of(context);
                let interrupted = tokio::select! {
                    // First, so that even a command that is interrupted at once is in the history.
                    biased;
                    () = run_line(context, &line) => false,
                    () = next_interrupt(&mut interrupts) => true,
                };
                if interrupted {
                    before.restore(context);
                    report(context, &Failure::Interrupted, "");
                }
            }
            Some(Typed::Interrupted) => {}
            Some(Typed::End) | None => break,
        }
    }
    drop(prompts);
    // The editor waits for a prompt or has ended: it sees that there is none to come.
    let _ = editor.join();
}

/// Never comes where signals cannot be listened to.
async fn next_interrupt(interrupts: &mut Option<Signal>) {
    match interrupts {
        Some(interrupts) => {
            interrupts.recv().await;
        }
        None => std::future::pending().await,
    }
}

fn editor(
    helper: ShellHelper,
    colour: bool,
) -> rustyline::Result<Editor<ShellHelper, FileHistory>> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .max_history_size(HISTORY_LINES_MAX)?
        .build();
    let mut editor = Editor::with_config(config)?;
    if !colour {
        editor.set_color_mode(ColorMode::Disabled);
    }
    editor.set_helper(Some(helper));
    Ok(editor)
}

/// Credentials are not written to a file.
fn remember(editor: &mut Editor<ShellHelper, FileHistory>, line: &str) {
    if !has_credentials(line) {
        let _ = editor.add_history_entry(line);
    }
}

fn has_credentials(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.next() == Some("addauth")
        || words
            .any(|word| word.trim_start_matches('-').starts_with("auth") && word.starts_with('-'))
}

/// `$IRONKEEPER_HISTORY`, or `history` in the directory for state that XDG names.
fn history_file() -> Option<PathBuf> {
    let set =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("IRONKEEPER_HISTORY").or_else(|| {
        let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
        Some(state.join("ironkeeper/history"))
    })
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
