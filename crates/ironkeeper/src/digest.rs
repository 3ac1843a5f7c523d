//! `ironkeeper digest`: computes the digest of a user and a password, for ACLs and for the super
//! user.

use std::io::{IsTerminal, Write};

use anyhow::{Context, Result, bail, ensure};
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::terminal;
use ironkeeper_config::DigestAlgorithm;
use serde::Serialize;

/// Compute the digest of a user and a password, for ACLs and for the super user
///
/// Servers store digests, never passwords. A client authenticates with
/// `addauth digest user:password`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ironkeeper digest anna                   asks for the password (or reads a line of standard input)
  ironkeeper digest anna:secret            other users of the machine can see the password meanwhile
  ironkeeper digest -q super               the digest alone, for scripts

  ironkeeper shell setAcl /app digest:$(ironkeeper digest -q anna):cdrwa
  echo \"DigestAuthenticationProvider.superDigest=$(ironkeeper digest -q super)\" >> zoo.cfg")]
pub struct Args {
    /// The user, or the user and the password
    #[arg(value_name = "USER[:PASSWORD]")]
    user: String,
    /// The algorithm, as configured on the servers by DigestAuthenticationProvider.digestAlg
    #[arg(long, value_name = "NAME", default_value = "SHA1", value_parser = algorithm)]
    algorithm: DigestAlgorithm,
    /// Print the digest alone
    #[arg(long, short)]
    quiet: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
}

fn algorithm(name: &str) -> Result<DigestAlgorithm, String> {
    DigestAlgorithm::from_name(name)
        .ok_or_else(|| format!("{name} is not known; SHA1, SHA-256, SHA-512 and SHA3-256 are"))
}

#[derive(Serialize)]
struct Digest {
    digest: String,
    acl: String,
    zoo_cfg: String,
}

pub fn run(args: &Args) -> Result<()> {
    let user_and_password = match args.user.split_once(':') {
        Some(_) => args.user.clone(),
        None => format!("{}:{}", args.user, password(&args.user)?),
    };
    ensure!(!user_and_password.starts_with(':'), "the user is missing: USER or USER:PASSWORD");
    let digest = args.algorithm.id(&user_and_password);
    let shown = Digest {
        acl: format!("digest:{digest}:cdrwa"),
        zoo_cfg: format!("DigestAuthenticationProvider.superDigest={digest}"),
        digest,
    };
    let mut out = std::io::stdout().lock();
    match (args.json, args.quiet) {
        (true, _) => writeln!(out, "{}", serde_json::to_string(&shown)?)?,
        (_, true) => writeln!(out, "{}", shown.digest)?,
        _ => writeln!(
            out,
            "digest      {}\nin an ACL   {}\nin zoo.cfg  {}   (for a super user)",
            shown.digest, shown.acl, shown.zoo_cfg
        )?,
    }
    Ok(())
}

/// Reads the password: at a terminal from a prompt without echo, otherwise a line of standard
/// input.
fn password(user: &str) -> Result<String> {
    let password = match std::io::stdin().is_terminal() {
        true => ask(user)?,
        false => {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).context("the password cannot be read")?;
            line.trim_end_matches(['\r', '\n']).to_owned()
        }
    };
    ensure!(!password.is_empty(), "the password is empty");
    Ok(password)
}

fn ask(user: &str) -> Result<String> {
    eprint!("Password of {user}: ");
    terminal::enable_raw_mode().context("the terminal cannot hide what is typed")?;
    let typed = typed();
    let restored = terminal::disable_raw_mode();
    eprintln!();
    restored?;
    typed
}

/// Returns the characters typed before Enter.
fn typed() -> Result<String> {
    let mut text = String::new();
    loop {
        let Event::Key(key) = event::read()? else { continue };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        match key.code {
            KeyCode::Enter => return Ok(text),
            KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                bail!("interrupted")
            }
            KeyCode::Char(c) => text.push(c),
            KeyCode::Backspace => drop(text.pop()),
            _ => {}
        }
    }
}
