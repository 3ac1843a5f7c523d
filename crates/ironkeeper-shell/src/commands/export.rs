//! `export`: writes a subtree as JSON, for people and for `import`.

use std::fmt::{self, Display};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::amounts::count;
use crate::command::{Command, Group};
use crate::context::Context;
use crate::export_file::{FORMAT, NodeRecord, VERSION};
use crate::failure::{Failure, Outcome};
use crate::node_walk::NodeWalk;
use crate::options::{Arguments, Opt};
use crate::output::Message;
use crate::planting;
use crate::progress::Progress;

pub const COMMAND: Command = Command {
    name: "export",
    aliases: &[],
    usage: "[-e] path [file]",
    summary: "Write a subtree as JSON: data, ACLs and kinds; to a file or to the output.",
    group: Group::More,
    options: &[Opt::flag("e", "leave out ephemeral nodes")],
    examples: &["export /app app.json"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let root = &*arguments.path(0)?;
    let client = context.client()?;
    let mut sheet = match arguments.word(1) {
        None => Sheet::Output(context),
        Some(name) => {
            let name = PathBuf::from(name);
            if name.exists() {
                context.confirm(&format!("Overwrite {}?", name.display())).await?;
            }
            Sheet::File(NewFile::create(&name)?)
        }
    };
    let mut progress = Progress::new("nodes exported", context.terminal.stderr);
    let mut walk = NodeWalk::new(&client, root).with_data(true).with_acl(true).without_system();
    let mut masked = 0;
    // The first node must be read before anything is written.
    let mut next = walk.next_readable().await?;
    let title = serde_json::to_string(root).map_err(std::io::Error::from)?;
    let mut line = format!(
        "{{\"format\": \"{FORMAT}\", \"version\": {VERSION}, \"root\": {title}, \"nodes\": ["
    );
    let mut nodes: u64 = 0;
    while let Some(found) = next {
        if !(found.is_ephemeral() && arguments.has("e")) {
            if nodes > 0 {
                line.push(',');
            }
            sheet.line(&line)?;
            line = serde_json::to_string(&NodeRecord::new(&found)).map_err(std::io::Error::from)?;
            masked += u64::from(planting::is_masked(&found.acl));
            nodes += 1;
            progress.add(1);
        }
        next = walk.next_readable().await?;
    }
    sheet.line(&line)?;
    sheet.line("]}")?;
    drop(progress);
    if masked > 0 {
        context.out.note(format!(
            "The server hides digests in the ACLs of {} from whoever has no ADMIN permission; import will refuse \
             them. Use addauth first.",
            count(masked, "node")
        ))?;
    }
    match sheet {
        Sheet::Output(_) => Ok(()),
        Sheet::File(file) => {
            let name = file.keep()?;
            let file = name.display().to_string();
            context.out.emit_aside(&Exported { exported: root, nodes, file })
        }
    }
}

/// The destination of the lines.
enum Sheet<'a> {
    Output(&'a Context),
    File(NewFile),
}

impl Sheet<'_> {
    fn line(&mut self, text: &str) -> Outcome {
        match self {
            // The lines are JSON in both output modes.
            Sheet::Output(context) => context.out.with_json(false).emit(&Message::new(text)),
            Sheet::File(file) => Ok(writeln!(file.writer, "{text}").map_err(|e| file.failed(&e))?),
        }
    }
}

/// A file that is renamed to its final name when it is complete. Until then an existing file of
/// that name stays unchanged.
struct NewFile {
    name: PathBuf,
    beside: PathBuf,
    writer: BufWriter<File>,
    kept: bool,
}

impl NewFile {
    fn create(name: &Path) -> Outcome<NewFile> {
        let mut beside = name.as_os_str().to_owned();
        beside.push(format!(".{}.part", std::process::id()));
        let beside = PathBuf::from(beside);
        let file = File::create_new(&beside).map_err(|error| {
            Failure::message(format!("Cannot write {}: {error}", beside.display()))
        })?;
        Ok(NewFile { name: name.to_owned(), beside, writer: BufWriter::new(file), kept: false })
    }

    fn keep(mut self) -> Outcome<PathBuf> {
        let done = self.writer.flush().and_then(|()| std::fs::rename(&self.beside, &self.name));
        done.map_err(|error| self.failed(&error))?;
        self.kept = true;
        Ok(self.name.clone())
    }

    fn failed(&self, error: &std::io::Error) -> Failure {
        Failure::message(format!("Cannot write {}: {error}", self.name.display()))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.kept {
            let _ = std::fs::remove_file(&self.beside);
        }
    }
}

#[derive(Serialize)]
struct Exported<'a> {
    exported: &'a str,
    nodes: u64,
    file: String,
}

impl Display for Exported<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exported {} ({}) to {}", self.exported, count(self.nodes, "node"), self.file)
    }
}
