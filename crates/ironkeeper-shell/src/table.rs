//! A table of text with columns of minimal width.

use std::fmt::{self, Display};

/// A title row and rows of cells; the last column is never padded.
#[derive(Debug)]
pub struct Table {
    titles: Vec<&'static str>,
    right: Vec<usize>,
    rows: Vec<Row>,
}

#[derive(Debug)]
enum Row {
    Cells(Vec<String>),
    /// A first cell, and a text in place of the others.
    Remark(String, String),
}

impl Table {
    pub fn new(titles: &[&'static str]) -> Table {
        Table { titles: titles.to_vec(), right: Vec::new(), rows: Vec::new() }
    }

    /// Aligns columns of numbers to the right.
    pub fn align_right(&mut self, columns: &[usize]) {
        self.right = columns.to_vec();
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(Row::Cells(cells));
    }

    pub fn remark(&mut self, first: String, rest: String) {
        self.rows.push(Row::Remark(first, rest));
    }

    fn width(&self, column: usize) -> usize {
        let cell = |row: &Row| match row {
            Row::Cells(cells) => cells.get(column).map_or(0, |cell| cell.chars().count()),
            Row::Remark(first, _) if column == 0 => first.chars().count(),
            Row::Remark(..) => 0,
        };
        self.rows.iter().map(cell).chain([self.titles[column].len()]).max().unwrap_or(0)
    }

    fn line<'a>(
        &self,
        f: &mut fmt::Formatter<'_>,
        widths: &[usize],
        cells: impl Iterator<Item = &'a str>,
    ) -> fmt::Result {
        let mut line = String::new();
        for (column, cell) in cells.enumerate() {
            if column > 0 {
                line.push_str("  ");
            }
            let width = widths.get(column).copied().unwrap_or(0);
            line += &match self.right.contains(&column) {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            };
        }
        writeln!(f, "{}", line.trim_end())
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.titles.len()).map(|column| self.width(column)).collect();
        self.line(f, &widths, self.titles.iter().copied())?;
        for row in &self.rows {
            match row {
                Row::Cells(cells) => self.line(f, &widths, cells.iter().map(String::as_str))?,
                Row::Remark(first, rest) => {
                    self.line(f, &widths[..1], [first.as_str(), rest.as_str()].into_iter())?;
                }
            }
        }
        Ok(())
    }
}
