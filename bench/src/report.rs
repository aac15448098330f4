//! The report of a benchmark: tables for people, JSON, and Markdown for RESULTS.md.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use types::{Error, Result};

use crate::machine::Context;
use crate::spread::Spread;

/// One run of one benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub benchmark: String,
    /// What is measured, in a sentence or two.
    pub question: String,
    pub context: Context,
    pub tables: Vec<Table>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Table {
    pub title: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Figure>>,
    /// What a reader needs to know.
    pub notes: Vec<String>,
}

impl Table {
    pub fn new(title: &str, columns: &[&str], rows: Vec<Vec<Figure>>, notes: Vec<String>) -> Table {
        Table { title: title.to_owned(), columns: columns.iter().map(|column| (*column).to_owned()).collect(), rows, notes }
    }
}

/// A cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "unit", content = "value", rename_all = "snake_case")]
pub enum Figure {
    Text(String),
    Count(u64),
    Seconds(Spread),
    Milliseconds(Spread),
    PerSecond(Spread),
    Bytes(Spread),
    Ratio(Spread),
    /// The column's name gives the unit; printed to one decimal.
    Number(Spread),
    Absent,
}

impl Figure {
    pub fn text(text: impl Into<String>) -> Figure {
        Figure::Text(text.into())
    }

    pub fn seconds(spread: Option<Spread>) -> Figure {
        spread.map_or(Figure::Absent, Figure::Seconds)
    }

    pub fn milliseconds(spread: Option<Spread>) -> Figure {
        spread.map_or(Figure::Absent, Figure::Milliseconds)
    }

    pub fn per_second(spread: Option<Spread>) -> Figure {
        spread.map_or(Figure::Absent, Figure::PerSecond)
    }

    pub fn bytes(spread: Option<Spread>) -> Figure {
        spread.map_or(Figure::Absent, Figure::Bytes)
    }

    pub fn ratio(spread: Option<Spread>) -> Figure {
        spread.map_or(Figure::Absent, Figure::Ratio)
    }

    pub fn number(number: f64) -> Figure {
        Spread::from_values([number]).map_or(Figure::Absent, Figure::Number)
    }
}

/// A ratio and whether it is at most `most`.
pub fn at_most(ratio: Option<f64>, most: f64) -> Figure {
    ratio.map_or(Figure::Absent, |ratio| Figure::text(format!("{ratio:.2}: {}", verdict(ratio <= most))))
}

/// A ratio and whether it is at least `least`.
pub fn at_least(ratio: Option<f64>, least: f64) -> Figure {
    ratio.map_or(Figure::Absent, |ratio| Figure::text(format!("{ratio:.2}: {}", verdict(ratio >= least))))
}

/// Whether an aim is met.
pub fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Figure::Text(text) => text.clone(),
            Figure::Count(count) => thousands(*count as f64),
            Figure::Seconds(spread) => spread.text(|seconds| format!("{seconds:.2}")),
            Figure::Milliseconds(spread) => spread.text(|ms| if ms < 0.1 { format!("{ms:.4}") } else { format!("{ms:.3}") }),
            Figure::PerSecond(spread) => spread.text(thousands),
            Figure::Bytes(spread) => spread.text(|bytes| thousands(bytes / f64::from(1 << 20))),
            Figure::Ratio(spread) => spread.text(|ratio| format!("{ratio:.2}")),
            Figure::Number(spread) => spread.text(|number| format!("{number:.1}")),
            Figure::Absent => "-".to_owned(),
        };
        f.write_str(&text)
    }
}

/// Formats a whole number with commas.
fn thousands(number: f64) -> String {
    let digits = format!("{:.0}", number);
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits.as_str()), |rest| ("-", rest));
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or_default()).collect();
    format!("{sign}{}", groups.join(","))
}

impl Report {
    pub fn write_json(&self, path: &Path) -> Result<()> {
        let text =
            serde_json::to_string_pretty(self).map_err(|error| Error::internal(format!("a report cannot be written as JSON: {error}")))?;
        std::fs::write(path, text + "\n").map_err(|error| Error::from(error).with("file", path.display()))
    }

    pub fn read_json(path: &Path) -> Result<Report> {
        let named = |error: Error| error.with("file", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| named(error.into()))?;
        serde_json::from_str(&text).map_err(|error| named(Error::input(format!("this is not the report of a benchmark: {error}"))))
    }

    /// Formats the report as a section of RESULTS.md.
    pub fn markdown(&self) -> String {
        let mut text =
            format!("## {}\n\n{}\n\n    {}\n\n{}\n", self.benchmark, self.question, self.context.command, self.context.markdown());
        for table in &self.tables {
            text.push_str(&format!("\n### {}\n\n", table.title));
            let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
            text.push_str(&line(table.columns.clone()));
            text.push_str(&line(table.columns.iter().map(|_| "---".to_owned()).collect()));
            table.rows.iter().for_each(|row| text.push_str(&line(row.iter().map(ToString::to_string).collect())));
            table.notes.iter().for_each(|note| text.push_str(&format!("\n- {note}")));
            if !table.notes.is_empty() {
                text.push('\n');
            }
        }
        text
    }
}

/// Formats the report for a terminal.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}\n{}", self.benchmark, self.question, self.context)?;
        for table in &self.tables {
            let mut shown = comfy_table::Table::new();
            shown.load_preset(comfy_table::presets::NOTHING).set_header(&table.columns);
            shown.add_rows(table.rows.iter().map(|row| row.iter().map(ToString::to_string)));
            writeln!(f, "\n{}\n{shown}", table.title)?;
            table.notes.iter().try_for_each(|note| writeln!(f, "({note})"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_reported_with_their_spread() {
        let spread = Spread::from_values([1.0, 2.0, 4.0]);
        assert_eq!(Figure::seconds(spread).to_string(), "2.00 (1.00 - 4.00)");
        assert_eq!(Figure::seconds(Spread::from_values([1.0])).to_string(), "1.00");
        assert_eq!(Figure::Count(1_234_567).to_string(), "1,234,567");
        assert_eq!(Figure::bytes(Spread::from_values([f64::from(3 << 20)])).to_string(), "3");
        assert_eq!(Figure::number(12.345).to_string(), "12.3");
        assert_eq!(Figure::Absent.to_string(), "-");
    }
}
