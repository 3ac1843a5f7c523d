//! The full screen for one command: an alternate screen and raw key input. The terminal is restored
//! on drop, after an error as well.

use std::io::{Write, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::style::Print;
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{execute, queue};
use tokio::sync::mpsc;

use super::failure::Outcome;

/// The poll interval at which the key thread checks whether the screen was dropped.
const KEYS_LOOKED_FOR: Duration = Duration::from_millis(50);
/// The size that is assumed if the terminal does not report one.
const SIZE_UNKNOWN: (u16, u16) = (80, 24);

/// An action of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    Quit,
    Resized,
}

#[derive(Debug)]
pub struct FullScreen {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    keys: mpsc::Receiver<Did>,
}

impl FullScreen {
    pub fn enter() -> Outcome<FullScreen> {
        terminal::enable_raw_mode()?;
        let (sender, keys) = mpsc::channel(16);
        let ended = Arc::new(AtomicBool::new(false));
        let mut screen = FullScreen { ended: Arc::clone(&ended), thread: None, keys };
        // From here on, dropping `screen` restores the terminal.
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        screen.thread = Some(std::thread::spawn(move || listen(&ended, &sender)));
        Ok(screen)
    }

    /// Waits for an action of the user; returns `Quit` if the terminal is closed.
    pub async fn next(&mut self) -> Did {
        self.keys.recv().await.unwrap_or(Did::Quit)
    }

    /// Returns columns and rows.
    pub fn size(&self) -> (usize, usize) {
        let (width, height) = match terminal::size() {
            Ok((width, height)) if width > 0 && height > 0 => (width, height),
            _ => SIZE_UNKNOWN,
        };
        (usize::from(width), usize::from(height))
    }

    /// Draws lines from the top and clears the rest. The lines must fit on the screen.
    pub fn draw(&self, lines: &[String]) -> Outcome {
        let mut out = stdout().lock();
        for (row, line) in lines.iter().enumerate() {
            let row = u16::try_from(row).unwrap_or(u16::MAX);
            queue!(out, MoveTo(0, row), Print(line), Clear(ClearType::UntilNewLine))?;
        }
        queue!(out, Clear(ClearType::FromCursorDown))?;
        Ok(out.flush()?)
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = execute!(stdout(), Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

/// Sends the user's actions to `sender` until `ended` is set.
fn listen(ended: &AtomicBool, sender: &mpsc::Sender<Did>) {
    while !ended.load(Ordering::Relaxed) {
        let did = match event::poll(KEYS_LOOKED_FOR) {
            Ok(false) => continue,
            Ok(true) => match event::read() {
                Ok(event) => meaning(&event),
                Err(_) => return,
            },
            Err(_) => return,
        };
        // If the queue is full, the action is dropped: the queued actions cause a redraw or a quit
        // anyway.
        if let Some(did) = did {
            let _ = sender.try_send(did);
        }
    }
}

fn meaning(event: &Event) -> Option<Did> {
    match event {
        Event::Resize(..) => Some(Did::Resized),
        Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) => match code {
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => Some(Did::Quit),
            KeyCode::Char('c' | 'd') if modifiers.contains(KeyModifiers::CONTROL) => {
                Some(Did::Quit)
            }
            _ => None,
        },
        _ => None,
    }
}
