//! Colours on a terminal.

use std::fmt::Display;
use std::io::IsTerminal;

/// The setting whether text is coloured. If not, every style is plain text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Colours {
    wanted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Blue,
}

impl Colours {
    pub fn when(wanted: bool) -> Colours {
        Colours { wanted }
    }

    /// Returns the setting for standard output: coloured if it is a terminal and the environment
    /// allows it.
    pub fn of_stdout() -> Colours {
        Colours::when(std::io::stdout().is_terminal() && Colours::allowed())
    }

    /// Returns whether the environment allows colours: `NO_COLOR` (<https://no-color.org>) is unset
    /// or empty, and `TERM` is not `dumb`.
    pub fn allowed() -> bool {
        std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
    }

    pub fn paint(self, style: Style, text: impl Display) -> String {
        let code = match style {
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Red => "31",
            Style::Green => "32",
            Style::Yellow => "33",
            Style::Blue => "34",
        };
        match self.wanted {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_plain_unless_colours_are_wanted() {
        assert_eq!(Colours::default().paint(Style::Red, "x"), "x");
        assert_eq!(Colours::when(true).paint(Style::Red, "x"), "\x1b[31mx\x1b[0m");
    }
}
