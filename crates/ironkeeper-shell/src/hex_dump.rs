//! A hex dump: offset, hexadecimal digits, text. The format is that of `get -x` in zkCli.

use std::fmt::{self, Display, Write};

const ROW: usize = 16;

/// Bytes to be printed as a hex dump; empty for no bytes.
#[derive(Clone, Copy, Debug)]
pub struct HexDump<'a>(pub &'a [u8]);

impl Display for HexDump<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        let edge = format!("+--------+{}+{}+", "-".repeat(3 * ROW + 1), "-".repeat(ROW));
        writeln!(f, "         +{}+", "-".repeat(3 * ROW + 1))?;
        f.write_str("         |")?;
        for column in 0..ROW {
            write!(f, "  {column:x}")?;
        }
        writeln!(f, " |")?;
        write!(f, "{edge}")?;
        for (number, row) in self.0.chunks(ROW).enumerate() {
            write!(f, "\n|{:08x}|", number * ROW)?;
            for byte in row {
                write!(f, " {byte:02x}")?;
            }
            write!(f, "{:width$} |", "", width = 3 * (ROW - row.len()))?;
            for byte in row {
                f.write_char(if (0x20..0x7f).contains(byte) { *byte as char } else { '.' })?;
            }
            write!(f, "{:width$}|", "", width = ROW - row.len())?;
        }
        write!(f, "\n{edge}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_padded_and_controls_are_dots() {
        let shown = HexDump(b"0123456789abcdef\x00\xffz").to_string();
        let rows: Vec<&str> = shown.lines().collect();
        assert_eq!(
            rows,
            [
                "         +-------------------------------------------------+",
                "         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |",
                "+--------+-------------------------------------------------+----------------+",
                "|00000000| 30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66 |0123456789abcdef|",
                "|00000010| 00 ff 7a                                        |..z             |",
                "+--------+-------------------------------------------------+----------------+",
            ]
        );
        assert_eq!(HexDump(b"").to_string(), "");
    }
}
