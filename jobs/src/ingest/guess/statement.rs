//! The text of a CREATE STREAM with guessed columns.

use definitions::TimeUnit;

use super::column::Guess;
use crate::ingest::column_names::path_text;
use crate::sql_names::quoted;

/// `is_whole`: the columns were guessed from all records, so that what is never null is NOT NULL.
pub(super) fn statement(name: &str, columns: &[Guess], event_time: &Guess, id: Option<&Guess>, is_whole: bool) -> String {
    let name_width = columns.iter().map(|column| quoted(&column.name).len()).max().unwrap_or(0);
    let is_not_null = |column: &Guess| column.name == event_time.name || (is_whole && !column.nullable);
    let lines: Vec<String> = columns.iter().map(|column| column_line(column, is_not_null(column), name_width)).collect();
    let id = id.map(|id| format!(", id = '{}'", id.name)).unwrap_or_default();
    let columns = lines.join(",\n");
    format!("CREATE STREAM {name} (\n{columns}\n) WITH (topic = '{name}', format = 'json', event_time = '{}'{id});\n", event_time.name)
}

fn column_line(column: &Guess, is_not_null: bool, name_width: usize) -> String {
    let not_null = if is_not_null { " NOT NULL" } else { "" };
    let mut options = Vec::new();
    if column.path != [column.name.as_str()] {
        options.push(format!("path = '{}'", path_text(&column.path).replace('\'', "''")));
    }
    if let Some(unit) = column.unit {
        options.push(format!("unit = '{}'", unit_text(unit)));
    }
    let options = if options.is_empty() { String::new() } else { format!(" OPTIONS ({})", options.join(", ")) };
    // A CREATE STREAM takes any word, but a SELECT does not: the name stands here as it is written there.
    format!("  {:name_width$}  {}{not_null}{options}", quoted(&column.name), column.column_type)
}

/// A unit as OPTIONS has it.
pub(super) fn unit_text(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Seconds => "s",
        TimeUnit::Millis => "ms",
        TimeUnit::Micros => "us",
        TimeUnit::Nanos => "ns",
    }
}
