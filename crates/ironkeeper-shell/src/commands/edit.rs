//! `edit`: opens the data of a node in an editor, and writes it back only if its version is
//! unchanged.

use std::fmt::{self, Display};
use std::io::Write;
use std::path::{Path, PathBuf};

use ironkeeper_client::{CreateMode, ErrorKind, Stat};
use serde::Serialize;

use crate::command::{Command, Group};
use crate::context::Context;
use crate::data_text::as_text;
use crate::failure::{Failure, Outcome};
use crate::options::{Arguments, Opt};

pub const COMMAND: Command = Command {
    name: "edit",
    aliases: &[],
    usage: "[-c] [-x] path",
    summary: "Edit the data of a node in $VISUAL or $EDITOR; refused if it was changed meanwhile.",
    group: Group::More,
    options: &[
        Opt::flag("c", "create the node if it is not there"),
        Opt::flag("x", "edit the bytes as hexadecimal digits"),
    ],
    examples: &["edit /app/config"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let path = &*arguments.path(0)?;
    let hex = arguments.has("x");
    let client = context.client()?;
    let node = match client.get(path).await {
        Ok(node) => Some(node),
        Err(error) if error.kind() == ErrorKind::NoNode && arguments.has("c") => None,
        Err(error) => return Err(error.into()),
    };
    let data = node.as_ref().map(|node| node.data.to_vec()).unwrap_or_default();
    let text = match (hex, as_text(&data)) {
        (true, _) => to_hex(&data),
        (false, Some(text)) => text.to_owned(),
        (false, None) => {
            return Err(Failure::message(format!(
                "The data of {path} is not text; edit -x {path} shows it as hexadecimal digits"
            )));
        }
    };
    let draft = Draft::write(path, &text)?;
    let edited = draft.edit().await?;
    let new = match hex {
        true => from_hex(&edited).ok_or_else(|| {
            draft.keep("These are not pairs of hexadecimal digits. Nothing was changed")
        })?,
        // Editors terminate the last line; if the original data had no final line end, it is
        // removed again.
        false if !text.ends_with('\n') && edited.ends_with('\n') => {
            edited.strip_suffix('\n').unwrap_or_default().as_bytes().to_vec()
        }
        false => edited.into_bytes(),
    };
    let Some(node) = node else {
        if new.is_empty() {
            return Err(Failure::message("Nothing was written, nothing is created"));
        }
        return match client.create(path, &new, CreateMode::Persistent).await {
            Ok(_) => context.out.emit(&Edited {
                edited: path,
                changed: true,
                version: 0,
                length: new.len(),
            }),
            Err(error) if error.kind() == ErrorKind::NodeExists => {
                Err(draft.keep(&format!("{path} was created by somebody else meanwhile")))
            }
            Err(error) => Err(draft.keep(&Failure::from(error).text(""))),
        };
    };
    let version = node.stat.version;
    if new == data {
        return context.out.emit(&Edited {
            edited: path,
            changed: false,
            version,
            length: new.len(),
        });
    }
    match client.set(path, &new, version).await {
        Ok(Stat { version, .. }) => {
            context.out.emit(&Edited { edited: path, changed: true, version, length: new.len() })
        }
        Err(error) if error.kind() == ErrorKind::BadVersion => {
            let now = match client.exists(path).await {
                Ok(Some(stat)) => format!("version {} by now", stat.version),
                _ => "gone by now".to_owned(),
            };
            Err(draft.keep(&format!(
                "{path} was changed by somebody else: you edited version {version}, it is {now}. Nothing was \
                 written over"
            )))
        }
        Err(error) if error.kind() == ErrorKind::NoNode => {
            Err(draft.keep(&format!("{path} was deleted by somebody else")))
        }
        Err(error) => Err(draft.keep(&Failure::from(error).text(""))),
    }
}

/// A temporary file with the text. It is deleted on drop unless it holds the only copy of the
/// user's edit.
struct Draft {
    file: PathBuf,
    kept: std::cell::Cell<bool>,
}

impl Draft {
    fn write(path: &str, text: &str) -> Outcome<Draft> {
        let cannot =
            |error: std::io::Error| Failure::message(format!("Cannot write a draft: {error}"));
        let name = path.rsplit('/').next().unwrap_or_default();
        let name: String = name
            .chars()
            .map(|c| if c.is_alphanumeric() || c == '.' || c == '-' { c } else { '_' })
            .take(60)
            .collect();
        // The file name ends in the node's name, so that editors recognise its extension.
        for number in 0..100 {
            let file = std::env::temp_dir()
                .join(format!("ironkeeper-edit-{}-{number}-{name}", std::process::id()));
            match new_private_file(&file) {
                Ok(mut opened) => {
                    let draft = Draft { file, kept: std::cell::Cell::new(false) };
                    opened.write_all(text.as_bytes()).map_err(cannot)?;
                    return Ok(draft);
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(cannot(error)),
            }
        }
        Err(Failure::message("Cannot write a draft: there are too many already"))
    }

    /// Runs the editor on a blocking thread, so that the session stays alive, and returns the
    /// edited text.
    async fn edit(&self) -> Outcome<String> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let editor = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".into());
        let shown = editor.to_string_lossy().into_owned();
        let file = self.file.clone();
        let ran = tokio::task::spawn_blocking(move || {
            // The variable may contain options and quotes, so a shell parses it.
            let mut line = editor;
            line.push(" \"$1\"");
            std::process::Command::new("sh").arg("-c").arg(line).arg("sh").arg(file).status()
        });
        let failed = |why: String| {
            Failure::message(format!("The editor ({shown}) {why}; nothing was changed"))
        };
        match ran.await {
            Ok(Ok(status)) if status.success() => {}
            Ok(Ok(status)) => return Err(failed(format!("ended with {status}"))),
            Ok(Err(error)) => return Err(failed(format!("did not start: {error}"))),
            Err(error) => return Err(failed(error.to_string())),
        }
        let bytes = std::fs::read(&self.file)
            .map_err(|error| failed(format!("left nothing to read: {error}")))?;
        String::from_utf8(bytes).map_err(|_| self.keep("What was edited is not UTF-8"))
    }

    /// Returns a failure, and keeps the file so that the user's edit is not lost.
    fn keep(&self, why: &str) -> Failure {
        self.kept.set(true);
        Failure::message(format!("{why}. Your text is in {}", self.file.display()))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.kept.get() {
            let _ = std::fs::remove_file(&self.file);
        }
    }
}

/// Opens a file that only this user can read, because the data may be secret.
fn new_private_file(file: &Path) -> std::io::Result<std::fs::File> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file)
}

/// Formats the data as hexadecimal digits, sixteen bytes per line.
fn to_hex(data: &[u8]) -> String {
    let line = |bytes: &[u8]| {
        let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        pairs.join(" ") + "\n"
    };
    data.chunks(16).map(line).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect();
    let digits = digits?;
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    Some(pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[derive(Serialize)]
struct Edited<'a> {
    edited: &'a str,
    changed: bool,
    version: i32,
    length: usize,
}

impl Display for Edited<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.changed {
            true => {
                write!(f, "{} is now version {}, {} bytes", self.edited, self.version, self.length)
            }
            false => write!(f, "{} was not changed", self.edited),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_their_digits() {
        for data in [&b""[..], b"\x00\xff", &[7; 40]] {
            assert_eq!(from_hex(&to_hex(data)).as_deref(), Some(data));
        }
        assert_eq!(from_hex("FFf\nf"), Some(vec![0xff, 0xff]));
        assert_eq!(from_hex("f"), None);
        assert_eq!(from_hex("zz"), None);
    }
}
