//! The findings of a check, as a report for people.

use std::fmt;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    Good,
    /// Informative; nothing breaks.
    Note,
    /// A fact that could not be determined and that decides whether the migration is possible.
    Unknown,
    /// A feature in use that would not work.
    Obstacle,
}

#[derive(Debug, Default)]
pub struct Findings {
    sections: Vec<Section>,
    /// The steps of the migration, if there are no obstacles.
    steps: Vec<String>,
    /// Features of Apache's server that are in use and not implemented in Ironkeeper.
    losses: Vec<String>,
}

#[derive(Debug)]
struct Section {
    title: String,
    lines: Vec<(Weight, String)>,
}

impl Findings {
    pub fn section(&mut self, title: impl Into<String>) {
        self.sections.push(Section { title: title.into(), lines: Vec::new() });
    }

    pub fn add(&mut self, weight: Weight, text: impl Into<String>) {
        if self.sections.is_empty() {
            self.section("findings");
        }
        if let Some(section) = self.sections.last_mut() {
            section.lines.push((weight, text.into()));
        }
    }

    pub fn step(&mut self, text: impl Into<String>) {
        self.steps.push(text.into());
    }

    pub fn loses(&mut self, part: impl Into<String>) {
        let part = part.into();
        if !self.losses.contains(&part) {
            self.losses.push(part);
        }
    }

    pub fn obstacles(&self) -> usize {
        self.count(Weight::Obstacle)
    }

    pub fn unknowns(&self) -> usize {
        self.count(Weight::Unknown)
    }

    fn count(&self, wanted: Weight) -> usize {
        let lines = self.sections.iter().flat_map(|section| &section.lines);
        lines.filter(|(weight, _)| *weight == wanted).count()
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for section in &self.sections {
            writeln!(f, "{}", section.title)?;
            for (weight, text) in &section.lines {
                let mark = match weight {
                    Weight::Good => "ok  ",
                    Weight::Note => "note",
                    Weight::Unknown => "????",
                    Weight::Obstacle => "STOP",
                };
                writeln!(f, "  {mark}  {text}")?;
            }
        }
        if !self.losses.is_empty() {
            writeln!(f, "you will lose: {}", self.losses.join(", "))?;
        }
        match self.obstacles() {
            0 if self.unknowns() > 0 => {
                let servers = match self.unknowns() {
                    1 => "one server".to_owned(),
                    count => format!("{count} servers"),
                };
                writeln!(
                    f,
                    "not known whether something stands in the way: {servers} could not be asked"
                )?;
            }
            0 => writeln!(f, "nothing stands in the way")?,
            1 => writeln!(f, "one thing stands in the way")?,
            count => writeln!(f, "{count} things stand in the way")?,
        }
        if self.obstacles() == 0 {
            for (index, step) in self.steps.iter().enumerate() {
                writeln!(f, "  {}. {step}", index + 1)?;
            }
        }
        Ok(())
    }
}
