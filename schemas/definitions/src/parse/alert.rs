//! `CREATE ALERT name WITH (options) AS SELECT .. FROM view WHERE ..`.

use super::found::{Found, Head};
use super::options::Options;
use super::stream::topic;
use super::tokens::Cursor;
use super::view::{refuse_column_list, select};
use crate::{AlertDefinition, Diagnostics, Origin};

const OPTIONS: [&str; 5] = ["topic", "format", "repeat", "resolve", "retention"];

/// Reads what follows the name.
pub(super) fn parse(head: Head, mut cursor: Cursor<'_>, problems: &mut Diagnostics) -> Option<Found> {
    let before = problems.len();
    refuse_column_list(&mut cursor, problems);
    let options = match cursor.take_word("with") {
        true => Options::parse(&mut cursor, "alert", &OPTIONS, problems),
        false => Options::none(),
    };
    let (topic, _) = topic(&options, &head, problems);
    super::stream::check_format(&options, problems);
    let repeat = options.duration("repeat", problems).map(|(repeat, _)| repeat);
    let resolve = options.flag("resolve", problems).unwrap_or(false);
    let retention = options.duration("retention", problems).map(|(retention, _)| retention);
    let (select_at, select) = select("alert", &mut cursor, problems)?;
    if problems.len() > before {
        return None;
    }
    let definition = AlertDefinition {
        name: head.name,
        topic,
        repeat,
        resolve,
        retention,
        select,
        select_line: select_at.line,
        select_column: select_at.column,
        sql: head.sql,
        origin: Origin { file: None, line: head.line },
    };
    Some(Found::Alert { definition, name_at: head.name_at })
}
