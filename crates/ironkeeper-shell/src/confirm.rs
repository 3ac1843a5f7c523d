//! A yes/no prompt on the terminal.

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::failure::{Failure, Outcome};

/// Prompts; every reply except yes is no. Standard input is read on a blocking thread, so that the
/// session stays alive meanwhile.
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
