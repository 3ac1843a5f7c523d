//! `ironkeeper demo`: runs every recipe against a server in this process and prints each change of
//! the tree.

mod scenes;
mod stage;

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::status;
use ironkeeper_shell::table::Table;
use scenes::Scene;
use stage::Stage;

/// The default pause between two lines on a terminal: long enough to read a line.
const PACE_ON_TERMINAL: Duration = Duration::from_millis(700);

/// Run recipes against a server in this process and show each change of the tree
///
/// Without names all demos run. Nothing remains afterwards.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// List the demos
    #[arg(long)]
    list: bool,
    /// Pause between two lines, in milliseconds [default: 700 on a terminal, otherwise 0]
    #[arg(long, value_name = "MS")]
    pace: Option<u64>,
    /// The demos to run, by the names of --list
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

/// Runs the demos that `args` selects.
pub fn run(args: &Args) -> Result<()> {
    if args.list {
        return list();
    }
    let scenes = chosen(&args.names)?;
    let pace = args.pace.map(Duration::from_millis).unwrap_or_else(|| {
        if std::io::stdout().is_terminal() { PACE_ON_TERMINAL } else { Duration::ZERO }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(play(&scenes, pace))
}

async fn play(scenes: &[&Scene], pace: Duration) -> Result<()> {
    for (at, scene) in scenes.iter().enumerate() {
        let mut stage = Stage::open(pace).await.context("the stage cannot be set up")?;
        stage.title(at + 1, scenes.len(), scene.name, scene.what);
        (scene.play)(&mut stage).await.with_context(|| format!("the scene {}", scene.name))?;
        stage.source(&scene.file(), scene.function());
        stage.close().await?;
    }
    Ok(())
}

fn list() -> Result<()> {
    let mut text = String::new();
    for group in scenes::ALL.chunk_by(|one, other| one.module() == other.module()) {
        let mut table = Table::new(&["name", "what it shows"]);
        for scene in group {
            table.row(vec![format!("  {}", scene.name), scene.what.to_owned()]);
        }
        let rows: Vec<String> = table.to_string().lines().skip(1).map(str::to_owned).collect();
        text += &format!("{}: {}\n{}\n\n", group[0].module(), group[0].file(), rows.join("\n"));
    }
    status::print(&format!("{text}`ironkeeper demo NAME` plays one.\n"))
}

fn chosen(names: &[String]) -> Result<Vec<&'static Scene>> {
    if names.is_empty() {
        return Ok(scenes::ALL.iter().collect());
    }
    let find = |name: &String| match scenes::ALL.iter().find(|scene| scene.name == name) {
        Some(scene) => Ok(scene),
        None => bail!("there is no scene `{name}`: `ironkeeper demo --list` shows them all"),
    };
    names.iter().map(find).collect()
}
