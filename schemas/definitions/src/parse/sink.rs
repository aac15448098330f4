//! `CREATE SINK name WITH (options) AS SELECT ..`.

use super::found::{DefinitionHead, Found};
use super::options::Options;
use super::output::OutputOptions;
use super::tokens::Cursor;
use super::view::select;
use crate::{Diagnostics, Features, Origin, SinkDefinition};

const OPTIONS: [&str; 5] = ["topic", "format", "key", "features", "retention"];

/// Reads what follows the name.
pub(super) fn parse(head: DefinitionHead, mut cursor: Cursor<'_>, problems: &mut Diagnostics) -> Option<Found> {
    let before = problems.len();
    let OutputOptions { options, topic, retention } = OutputOptions::parse("sink", &OPTIONS, &head, &mut cursor, problems);
    let key = options.text("key", problems).map(|(name, _)| name.to_owned());
    let features = features(&options, problems);
    let (select_at, select) = select("sink", &mut cursor, problems)?;
    if problems.len() > before {
        return None;
    }
    let definition = SinkDefinition {
        name: head.name,
        topic,
        key,
        features,
        retention,
        select,
        select_line: select_at.line,
        select_column: select_at.column,
        sql: head.sql,
        origin: Origin { file: None, line: head.line },
    };
    Some(Found::Sink { definition, name_at: head.name_at })
}

fn features(options: &Options, problems: &mut Diagnostics) -> Features {
    match options.text("features", problems) {
        None | Some(("inclusive", _)) => Features::Inclusive,
        Some(("exclusive", _)) => Features::Exclusive,
        Some((text, entry)) => {
            let expected =
                "expected 'inclusive' (the rows of views count the event itself) or 'exclusive' (they count what came before it)";
            problems.push(entry.value_at.error(format!("unknown features '{text}'")).help(expected));
            Features::Inclusive
        }
    }
}
