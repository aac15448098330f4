//! Checks which changes of a stream keep its archived events readable.

use definitions::StreamDefinition;

/// Returns why `new` cannot follow `old` under the same name; empty if it can. Columns may be added (nullable),
/// dropped, moved to another path and made nullable; deduplication window and retention may change.
pub fn incompatibilities(old: &StreamDefinition, new: &StreamDefinition) -> Vec<String> {
    let mut reasons = Vec::new();
    for column in &new.columns {
        let before = old.columns.iter().find(|before| before.name == column.name);
        match before {
            Some(before) if before.column_type != column.column_type => reasons.push(format!(
                "the type of \"{}\" would change from {} to {}, and archived events have the old type",
                column.name, before.column_type, column.column_type
            )),
            Some(before) if before.nullable && !column.nullable => {
                reasons.push(format!("\"{}\" would become NOT NULL, and archived events may hold NULL", column.name));
            }
            None if !column.nullable => {
                reasons.push(format!("\"{}\" would be a new NOT NULL column, and archived events lack it", column.name));
            }
            _ => {}
        }
    }
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".into());
    let fixed = [
        ("topic", old.topic.to_string(), new.topic.to_string(), "offsets of one topic mean nothing in another"),
        ("event_time", old.event_time.clone(), new.event_time.clone(), "archived events are dated by the old column"),
        ("id", text(&old.id), text(&new.id), "duplicates were detected by the old id"),
        ("key", text(&old.key), text(&new.key), "events of one key would be in other partitions than before"),
    ];
    for (option, before, after, why) in fixed {
        if before != after {
            reasons.push(format!("{option} would change from {before} to {after}, and {why}"));
        }
    }
    reasons
}
