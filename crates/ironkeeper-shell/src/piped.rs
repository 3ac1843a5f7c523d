//! Commands from a pipe or a file, one per line, without a prompt.
//!
//! The status of the script is the status of the first command that failed; with `-e` the script
//! ends at that command.

use std::io::{BufRead, Read, stdin};

use tokio::sync::mpsc;

use super::context::Context;
use super::dispatch::{report, run_line};
use super::failure::Failure;

/// The longest line that is accepted; servers accept a megabyte of data by default.
const LINE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Runs until `quit` or the end of the input.
pub async fn run(context: &mut Context) {
    let (sender, mut lines) = mpsc::channel(16);
    // The thread is not joined: it may wait for input forever, and ends with the process.
    std::thread::spawn(move || {
        let mut stdin = stdin().lock();
        loop {
            let mut line = Vec::new();
            let read = stdin.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
            let line = match read {
                Ok(0) => return,
                Ok(_) => decode(line),
                Err(error) => Err(format!("cannot read commands: {error}")),
            };
            let last = line.is_err();
            if sender.blocking_send(line).is_err() || last {
                return;
            }
        }
    });
    while !context.quit {
        match lines.recv().await {
            Some(Ok(line)) => {
                run_line(context, &line).await;
                if context.stops_on_error && context.first_failure != 0 {
                    break;
                }
            }
            Some(Err(text)) => return report(context, &Failure::message(text), ""),
            None => break,
        }
    }
}

/// Returns a line without its line end.
fn decode(mut line: Vec<u8>) -> Result<String, String> {
    if line.last() == Some(&b'\n') {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    } else if line.len() as u64 == LINE_BYTES_MAX {
        return Err(format!("a command is longer than {LINE_BYTES_MAX} bytes"));
    }
    String::from_utf8(line).map_err(|_| "a command is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn lines_lose_their_ends() {
        assert_eq!(decode(b"ls /\r\n".to_vec()).unwrap(), "ls /");
        assert_eq!(decode(b"ls /".to_vec()).unwrap(), "ls /");
        assert!(decode(b"set /a \xff\n".to_vec()).is_err());
    }
}
