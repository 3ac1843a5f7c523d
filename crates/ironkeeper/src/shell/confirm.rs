//! A question on a terminal that is answered by y or n.

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::failure::{Failure, Outcome};

/// Asks; anything but yes is no. Reading happens beside the runtime, so that the session stays alive while
/// somebody thinks about it.
pub async fn ask(question: &str) -> Outcome<bool> {
    let prompt = format!("{question} [y/N] ");
    let answer = tokio::task::spawn_blocking(move || DefaultEditor::new()?.readline(&prompt)).await;
    match answer {
        Ok(Ok(line)) => Ok(matches!(line.trim(), "y" | "Y" | "yes" | "Yes" | "YES")),
        Ok(Err(ReadlineError::Eof | ReadlineError::Interrupted)) => Ok(false),
        Ok(Err(error)) => Err(Failure::message(format!("cannot ask: {error}"))),
        Err(error) => Err(Failure::message(format!("cannot ask: {error}"))),
    }
}
