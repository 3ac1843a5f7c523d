//! A pseudo-terminal that runs `ironkeeper` with a prompt: sends keys and waits for output.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// The timeout of every wait; no test requires it to be short.
const APPEARS_WITHIN: Duration = Duration::from_secs(60);

pub const TAB: &str = "\t";
pub const ENTER: &str = "\r";
pub const UP: &str = "\x1b[A";
pub const CTRL_C: &str = "\x03";
pub const CTRL_D: &str = "\x04";

/// A shell at a prompt, killed on drop.
pub struct PseudoTerminal {
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    /// The output that was not awaited yet, and the whole output for failure messages.
    unseen: String,
    all: String,
    shell: Child,
    server: String,
}

impl PseudoTerminal {
    /// Starts `ironkeeper shell` with these arguments; `history` is its history file.
    pub fn start(server: &str, arguments: &[&str], history: &Path) -> PseudoTerminal {
        let arguments = [&["shell", "-server", server], arguments].concat();
        PseudoTerminal::of(&arguments, ("IRONKEEPER_HISTORY", history), server)
    }

    /// Starts `ironkeeper` with these arguments and an environment variable that sets the location
    /// of its history.
    pub fn of(arguments: &[&str], history: (&str, &Path), server: &str) -> PseudoTerminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        tcsetwinsize(&master, Winsize { ws_row: 50, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 })
            .unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let terminal = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::NOCTTY.bits() as i32)
            .open(name.to_str().unwrap())
            .unwrap();
        let end = || Stdio::from(terminal.try_clone().unwrap());
        let shell = Command::new(env!("CARGO_BIN_EXE_ironkeeper"))
            .args(arguments)
            .env("TERM", "xterm")
            .env("NO_COLOR", "1")
            .env(history.0, history.1)
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        drop(terminal);
        let (appeared, screen) = channel();
        let keyboard = File::from(master);
        let mut reader = keyboard.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // When the last process of the terminal ends, the read fails.
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                if appeared.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let (unseen, all) = (String::new(), String::new());
        PseudoTerminal { keyboard, screen, unseen, all, shell, server: server.to_owned() }
    }

    pub fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    pub fn run(&mut self, line: &str) {
        self.press(line);
        self.press(ENTER);
    }

    /// Waits until `text` has appeared after the text of the previous wait.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) {
        let deadline = Instant::now() + APPEARS_WITHIN;
        loop {
            let plain = without_escapes(&self.unseen);
            if let Some(at) = plain.find(text) {
                // The escapes before the text are dropped with it; the rest has no escapes left.
                self.unseen = plain[at + text.len()..].to_owned();
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.screen.recv_timeout(left) {
                Ok(bytes) => {
                    let text = String::from_utf8_lossy(&bytes);
                    self.unseen.push_str(&text);
                    self.all.push_str(&text);
                }
                Err(error) => {
                    let gone = matches!(error, RecvTimeoutError::Disconnected);
                    panic!(
                        "{text:?} did not appear (shell gone: {gone}); the screen:\n{}",
                        self.all
                    );
                }
            }
        }
    }

    /// Returns all output so far.
    pub fn seen(&self) -> &str {
        &self.all
    }

    /// Waits for a new prompt, for the command with this number. The prompt is drawn again with
    /// every key, but only a new prompt starts a line.
    #[track_caller]
    pub fn wait_for_prompt(&mut self, number: usize) {
        self.wait_for(&format!("\n[zk: {}(CONNECTED) {number}] ", self.server));
    }

    /// Sends SIGINT, as the terminal does at Ctrl-C while no line is edited.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.shell), signal).unwrap();
    }

    /// Returns whether the terminal is in line mode, as it is while no program edits lines.
    pub fn edits_lines(&self) -> bool {
        let modes = tcgetattr(&self.keyboard).unwrap();
        modes.local_modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Waits for the end of the shell.
    pub fn wait_for_end(&mut self) -> ExitStatus {
        // The remaining output must be read, or the shell cannot end.
        while self.screen.recv_timeout(APPEARS_WITHIN).is_ok() {}
        self.shell.wait().unwrap()
    }
}

impl Drop for PseudoTerminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// Removes escape sequences. An incomplete sequence at the end stays.
fn without_escapes(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        plain.push_str(&rest[..at]);
        let escape = &rest[at + 1..];
        let end = match escape.strip_prefix('[') {
            Some(codes) => codes.find(|c: char| ('@'..='~').contains(&c)).map(|end| end + 2),
            None => (!escape.is_empty()).then_some(1),
        };
        match end {
            Some(end) => rest = &escape[end..],
            None => {
                plain.push_str(&rest[at..]);
                rest = "";
            }
        }
    }
    plain.push_str(rest);
    plain.replace('\r', "")
}
