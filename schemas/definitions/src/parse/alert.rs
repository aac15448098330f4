//! `CREATE ALERT name WITH (options) AS SELECT .. FROM view WHERE ..`.

use super::found::{DefinitionHead, Found};
use super::output::OutputOptions;
use super::tokens::Cursor;
use super::view::select;
use crate::{AlertDefinition, Diagnostics, Origin};

const OPTIONS: [&str; 5] = ["topic", "format", "repeat", "resolve", "retention"];

/// Reads what follows the name.
pub(super) fn parse(head: DefinitionHead, mut cursor: Cursor<'_>, problems: &mut Diagnostics) -> Option<Found> {
    let before = problems.len();
    let OutputOptions { options, topic, retention } = OutputOptions::parse("alert", &OPTIONS, &head, &mut cursor, problems);
    let repeat = options.duration("repeat", problems).map(|(repeat, _)| repeat);
    let resolve = options.flag("resolve", problems).unwrap_or(false);
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
