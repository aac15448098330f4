//! What CREATE SINK and CREATE ALERT have in common: options about the topic that their records go to.

use std::sync::Arc;
use std::time::Duration;

use super::found::DefinitionHead;
use super::options::Options;
use super::stream::{check_format, topic};
use super::tokens::Cursor;
use super::view::refuse_column_list;
use crate::Diagnostics;

/// The options after the name, and those of them that both have.
pub(super) struct OutputOptions {
    pub(super) options: Options,
    pub(super) topic: Arc<str>,
    pub(super) retention: Option<Duration>,
}

impl OutputOptions {
    /// Reads the options, all of which are in `known`.
    pub(super) fn parse(
        kind: &str,
        known: &[&str],
        head: &DefinitionHead,
        cursor: &mut Cursor<'_>,
        problems: &mut Diagnostics,
    ) -> OutputOptions {
        refuse_column_list(cursor, problems);
        let options = match cursor.take_word("with") {
            true => Options::parse(cursor, kind, known, problems),
            false => Options::none(),
        };
        let (topic, _) = topic(&options, head, problems);
        check_format(&options, problems);
        let retention = options.duration("retention", problems).map(|(retention, _)| retention);
        OutputOptions { options, topic, retention }
    }
}
