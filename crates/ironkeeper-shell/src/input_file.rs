//! Reads a file named on a command line, or standard input for `-`.

use std::io::Read;

use super::context::Context;
use super::failure::{Failure, Outcome};

/// Reads the whole file on a blocking thread, so that the session stays alive.
pub async fn read(context: &Context, name: &str, bytes_max: u64) -> Outcome<Vec<u8>> {
    if name == "-" && context.reads_commands {
        return Err(Failure::message(
            "The input is where commands come from; name a file, or give the command itself to \
             ironkeeper shell",
        ));
    }
    let name = name.to_owned();
    let read = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        let source: Box<dyn Read> = match name.as_str() {
            "-" => Box::new(std::io::stdin().lock()),
            _ => Box::new(
                std::fs::File::open(&name)
                    .map_err(|error| format!("Cannot read {name}: {error}"))?,
            ),
        };
        source
            .take(bytes_max + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("Cannot read {name}: {error}"))?;
        match bytes.len() as u64 > bytes_max {
            true => Err(format!("{name} is larger than {bytes_max} bytes")),
            false => Ok(bytes),
        }
    });
    read.await.map_err(|error| Failure::message(error.to_string()))?.map_err(Failure::message)
}
