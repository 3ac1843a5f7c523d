//! `ironkeeper shell`: an interactive client, compatible with zkCli, with additional commands.
//!
//! The shell runs one command (`ironkeeper shell get /x`), commands from a pipe, or commands from a
//! prompt. A `command::Command` is a row in a table, with one file each in `commands/`. It receives
//! a `context::Context`, prints records through `output::Output` (text or JSON), and returns
//! success or a `failure::Failure`. These four types are the ones to read first.
//!
//! The public modules are the parts that other commands of the binary use as well: the line editor,
//! tables, colours, amounts, and four-letter words.
//!
//! The shell never sends a request of its own: all access to the tree uses the client crate.

mod acl_text;
pub mod amounts;
mod client_configuration;
pub mod colour;
mod command;
mod commands;
mod complete;
mod confirm;
mod context;
mod data_text;
mod dispatch;
mod events;
mod export_file;
mod failure;
pub mod four_letter;
mod full_screen;
mod hex_dump;
mod hints;
mod history;
mod input_file;
mod interactive;
pub mod line_editor;
mod node_walk;
mod options;
mod output;
mod path_form;
mod piped;
mod place;
mod planting;
mod progress;
mod prompt;
mod quota;
mod samples;
mod session;
mod stat_text;
mod subtree;
pub mod table;
mod transplant;
mod watches;
mod words;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ironkeeper_client::TlsTransport;

use context::{Context, Terminal};
use events::Events;
use history::History;
use output::Output;
use session::{Session, Settings};

/// Work with a ZooKeeper server interactively, as with zkCli.sh
///
/// With a command it runs that and exits. Without one it reads commands, from a terminal with a
/// prompt or from a pipe; `help` lists them.
#[derive(Debug, clap::Args)]
#[command(after_help = OPTIONS_HELP, override_usage = USAGE)]
pub struct Args {
    /// Options, then a command and its arguments
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND",
        hide = true
    )]
    words: Vec<String>,
}

const USAGE: &str = "ironkeeper shell [OPTIONS] [COMMAND [ARGUMENTS]]";

const OPTIONS_HELP: &str = "\
Shell options (one dash or two):
  -server HOST:PORT[,...][/CHROOT]  where to connect [default: localhost:2181]
  -timeout MS                       session timeout [default: 30000]
  -r                                a read-only server will do
  -waitforconnection                fail unless a server answers within the timeout
  -client-configuration FILE        properties of a TLS connection, as Apache's client has them; PEM stores
  --json                            print JSON, an object per line; for every command
  --yes                             do not ask before deleting a subtree
  -e, --stop-on-error               end at the first command from a pipe that fails
  --version                         print the version of this shell

Exit codes:
  0    the command succeeded, or every command of a script did
  1    it failed; of a script: the code of the first command that failed
  2    it was done, except for nodes that must not be read
  127  there is no such command
  130  it was interrupted

Examples:
  ironkeeper shell get /app                          the data of a node, and nothing else
  ironkeeper shell get -raw /app/image > image.png   bytes as they are
  ironkeeper shell set -f config.json /app/config    data from a file; - is standard input
  path=$(ironkeeper shell create -s /queue/item- x)  the path that was created
  ironkeeper shell -e < commands.txt                 a script that ends at the first error
  ironkeeper shell --json get /app | jq .stat.version";

/// The timeout for closing a session when no result depends on it.
const CLOSED_WITHIN: Duration = Duration::from_secs(2);

/// The parsed command line.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    server: String,
    timeout_ms: u64,
    read_only: bool,
    wait: bool,
    /// A file with the properties of a TLS connection.
    configuration: Option<String>,
    json: bool,
    yes: bool,
    stops_on_error: bool,
    /// Prints only the version.
    version: bool,
    /// Prints only the options.
    help: bool,
    /// The command and its arguments; empty if commands are read from standard input.
    command: Vec<String>,
}

impl Call {
    fn parse(words: Vec<String>) -> Result<Call> {
        let mut call = Call {
            server: "localhost:2181".to_owned(),
            timeout_ms: 30_000,
            read_only: false,
            wait: false,
            configuration: None,
            json: false,
            yes: false,
            stops_on_error: false,
            version: false,
            help: false,
            command: Vec::new(),
        };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let Some(option) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
                call.command = [word].into_iter().chain(words).collect();
                break;
            };
            if word == "--" {
                call.command = words.collect();
                break;
            }
            let (name, joined) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (option, None),
            };
            let mut value = || {
                joined
                    .clone()
                    .or_else(|| words.next())
                    .with_context(|| format!("no argument found for option {word}"))
            };
            match name {
                "server" => call.server = value()?,
                "timeout" => {
                    let text = value()?;
                    call.timeout_ms = text
                        .parse()
                        .with_context(|| format!("not a timeout in milliseconds: {text}"))?;
                }
                "r" => call.read_only = true,
                "waitforconnection" => call.wait = true,
                "json" => call.json = true,
                "yes" => call.yes = true,
                "e" | "stop-on-error" => call.stops_on_error = true,
                "version" => call.version = true,
                "help" => call.help = true,
                "client-configuration" => call.configuration = Some(value()?),
                _ => bail!("unknown option {word}; see ironkeeper shell --help"),
            }
        }
        Ok(call)
    }
}

/// Runs the shell. Returns the status of its last command; for a script, the status of the first
/// command that failed.
pub fn run(args: Args) -> Result<ExitCode> {
    run_parsed(&Call::parse(args.words)?, true)
}

/// Runs a command that needs no session, such as `top`.
pub fn run_without_session(command: Vec<String>) -> Result<ExitCode> {
    run_parsed(&Call { command, ..Call::parse(Vec::new())? }, false)
}

fn run_parsed(call: &Call, with_session: bool) -> Result<ExitCode> {
    if call.help {
        println!("Usage: {USAGE}\n\n{OPTIONS_HELP}");
        return Ok(ExitCode::SUCCESS);
    }
    if call.version {
        println!("{}", commands::version_line());
        return Ok(ExitCode::SUCCESS);
    }
    let tls = match &call.configuration {
        Some(file) => client_configuration::transport(file)?,
        None => None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let out = Output::new(call.json);
    let terminal = Terminal::look();
    let interactive = call.command.is_empty() && terminal.stdin;
    let (events, printing) = Events::start(out.clone(), interactive);
    // For a single command no events of the connection are printed.
    events.print(call.command.is_empty());
    let status = runtime.block_on(run_call(call, with_session, tls, out, events, terminal));
    // Ends the tasks of watches. They own the last senders of events, so the printing thread ends,
    // too. Operations that cannot be interrupted are not awaited: a name server that does not
    // answer, an editor, a read of standard input.
    runtime.shutdown_background();
    let _ = printing.join();
    Ok(ExitCode::from(status))
}

async fn run_call(
    call: &Call,
    with_session: bool,
    tls: Option<TlsTransport>,
    out: Output,
    events: Events,
    terminal: Terminal,
) -> u8 {
    let interactive = call.command.is_empty() && terminal.stdin;
    let settings = Settings {
        timeout: Duration::from_millis(call.timeout_ms),
        read_only: call.read_only,
        wait: call.wait,
        tls,
    };
    let mut context = Context {
        out,
        session: Session::new(settings, events),
        history: History::default(),
        yes: call.yes,
        terminal,
        interactive,
        reads_commands: call.command.is_empty(),
        directory: None,
        stops_on_error: call.stops_on_error,
        status: 0,
        first_failure: 0,
        quit: false,
        again: None,
    };
    let context = &mut context;
    if call.command.is_empty() {
        greet(context, &call.server);
    }
    if with_session && let Err(failure) = context.session.connect(&call.server).await {
        dispatch::report(context, &failure, "");
        return context.status;
    }
    if !call.command.is_empty() {
        dispatch::run_words(context, &call.command).await;
    } else if interactive {
        interactive::run(context).await;
    } else {
        piped::run(context).await;
    }
    let _ = tokio::time::timeout(CLOSED_WITHIN, context.session.close()).await;
    match context.is_script() {
        true => context.first_failure,
        false => context.status,
    }
}

/// Prints zkCli's banner; on standard error if a script reads the results.
fn greet(context: &Context, server: &str) {
    let banner =
        format!("Connecting to {server}\nWelcome to Ironkeeper! Type help for the commands.");
    // A closed output is reported by the first command.
    let _ = match context.interactive {
        true if !context.out.is_json() => context.out.emit(&output::Message::new(banner)),
        _ => context.out.note(banner),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Call> {
        Call::parse(line.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn options_are_those_of_zkcli_with_one_dash_or_two() {
        for line in [
            "-server h:1/app -timeout 500 -r ls -s /",
            "--server=h:1/app --timeout 500 --r ls -s /",
        ] {
            let call = parse(line).unwrap();
            assert_eq!((call.server.as_str(), call.timeout_ms), ("h:1/app", 500));
            assert!(call.read_only && !call.wait && !call.json);
            assert_eq!(call.command, ["ls", "-s", "/"]);
        }
        assert_eq!(parse("").unwrap().server, "localhost:2181");
        assert!(parse("--json").unwrap().json);
        assert_eq!(parse("-server h:1 -- ls -s /").unwrap().command, ["ls", "-s", "/"]);
        assert!(
            parse("-e").unwrap().stops_on_error && parse("--stop-on-error").unwrap().stops_on_error
        );
        assert!(parse("--version").unwrap().version);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for line in ["-server", "-timeout soon", "-what ls /", "-timeout"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
