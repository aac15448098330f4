//! Plain text for a terminal: numbered steps, boxes with arrows, tables. No colours, no cursor movements.

use std::io::Write;

use comfy_table::{ContentArrangement, Table, presets};

use crate::output::noun_of;

/// Writes what the demo prints. A closed terminal is no error.
#[derive(Debug, Default)]
pub struct Narrator {
    step: usize,
}

impl Narrator {
    /// Prints a line at once.
    pub fn line(&self, text: impl AsRef<str>) {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{}", text.as_ref());
        let _ = out.flush();
    }

    /// Starts the next step.
    pub fn step(&mut self, title: &str) {
        self.step += 1;
        self.line(format!("\n{}. {title}", self.step));
    }

    /// Prints a line of the step.
    pub fn say(&self, text: impl AsRef<str>) {
        self.block(text.as_ref());
    }

    /// Prints several lines of the step unchanged.
    pub fn block(&self, text: &str) {
        for line in text.lines() {
            self.line(format!("   {line}").trim_end());
        }
    }
}

/// Draws boxes in a row, connected by arrows from left to right.
pub fn boxes(boxes: &[(&str, Vec<String>)]) -> String {
    let height = boxes.iter().map(|(_, lines)| lines.len()).max().unwrap_or_default();
    let widths: Vec<usize> = boxes
        .iter()
        .map(|(title, lines)| lines.iter().map(|l| l.chars().count()).chain([title.chars().count() + 2]).max().unwrap_or(0))
        .collect();
    let mut rows = vec![String::new(); height + 2];
    for (index, ((title, lines), width)) in boxes.iter().zip(&widths).enumerate() {
        let first = index == 0;
        let arrow = |row: usize| match (first, row) {
            (true, _) => "",
            (false, 1) => "->",
            (false, _) => "  ",
        };
        rows[0] += &format!("{}+-{:-<width$}-+", arrow(0), format!("{title} "));
        for (row, text) in rows[1..=height].iter_mut().enumerate() {
            *text += &format!("{}| {:<width$} |", arrow(row + 1), lines.get(row).map_or("", String::as_str));
        }
        rows[height + 1] += &format!("{}+-{:-<width$}-+", arrow(0), "");
    }
    rows.join("\n")
}

/// Formats a table with a header.
pub fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled).set_header(header);
    table.add_rows(rows);
    table.to_string()
}

/// Formats a count and its noun: `1 row`, `1,234 rows`.
pub fn thousands_of(number: i64, noun: &str) -> String {
    format!("{} {}", thousands(number), noun_of(number, noun))
}

/// Formats `1234567` as `1,234,567`.
pub fn thousands(number: impl Into<i64>) -> String {
    let number: i64 = number.into();
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests;
