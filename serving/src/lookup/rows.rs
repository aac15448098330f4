//! The rows of some keys: on the thread that asks if that is quick, else on the pool for blocking work.

use std::sync::Arc;

use arrow::array::ArrayRef;
use datafusion::common::ScalarValue;
use engine::walk::CancelCheck;
use types::Result;

use super::keys;
use crate::answerer::{Answerer, Answers, AskedKeys, StateSource, WantedPaths, answerer};
use crate::archive::{ArchiveLayer, archive_layer};
use crate::query_context::QueryContext;
use crate::query_runtime::QueryRuntime;
use crate::read_view::LoadedView;

/// The rows of these keys, of one view: what lookups and the lookup path of SQL both run.
pub(crate) struct KeyRows {
    pub(crate) context: QueryContext,
    pub(crate) view: Arc<str>,
    /// Each in the order of the view's keys and of their types.
    pub(crate) keys: Vec<Vec<ScalarValue>>,
    /// Indices of the plan's columns.
    pub(crate) columns: Vec<usize>,
    pub(crate) paths: WantedPaths,
}

impl KeyRows {
    pub(crate) async fn answer(self, runtime: &QueryRuntime) -> Result<Answers> {
        let view = self.context.read_view.view(&self.view)?;
        let archive = match self.context.needs_archive(view) {
            // In a box: the plan of a query makes a large future, which every lookup would carry.
            true => Some(Box::pin(archive_layer(runtime, &view.live, &self.context, self.only_key(view))).await?),
            false => None,
        };
        let columns = self.key_columns()?;
        if let Some(answers) = self.rows_if_quick(&columns, archive.as_ref())? {
            return Ok(answers);
        }
        let merge = move |cancelled: &crate::blocking_pool::CancelOnDrop| self.rows(&columns, archive.as_ref(), &|| cancelled.check());
        Box::pin(runtime.lookups().run(merge)).await
    }

    /// The one key that is asked. Links may lead from it to any event, so that all are needed there.
    fn only_key(&self, view: &LoadedView) -> Option<&[ScalarValue]> {
        match self.keys.as_slice() {
            [key] if !key.is_empty() && !answerer(&view.live).follows_links() => Some(key),
            _ => None,
        }
    }

    pub(super) fn key_columns(&self) -> Result<Vec<ArrayRef>> {
        keys::columns(self.context.read_view.view(&self.view)?.live.plan.answer_keys(), &self.keys)
    }

    fn rows_if_quick(&self, columns: &[ArrayRef], archive: Option<&ArchiveLayer>) -> Result<Option<Answers>> {
        self.ask(columns, archive, |answerer, source, asked| answerer.rows_if_quick(source, asked))
            .map(|answers| answers.map(|answers| self.note_estimates(answers)))
    }

    /// An error of `cancel_check` ends it.
    pub(super) fn rows(&self, columns: &[ArrayRef], archive: Option<&ArchiveLayer>, cancel_check: &CancelCheck<'_>) -> Result<Answers> {
        self.ask(columns, archive, |answerer, source, asked| answerer.rows(source, asked, cancel_check))
            .map(|answers| self.note_estimates(answers))
    }

    fn ask<T>(
        &self,
        columns: &[ArrayRef],
        archive: Option<&ArchiveLayer>,
        answer: impl FnOnce(&dyn Answerer, &StateSource<'_>, &AskedKeys<'_>) -> Result<T>,
    ) -> Result<T> {
        let read_view = &self.context.read_view;
        let loaded = read_view.view(&self.view)?;
        let source = StateSource::new(read_view, loaded, archive);
        let (keys, t) = (self.keys.len(), self.context.t(&loaded.live));
        let asked = AskedKeys { columns, keys, t, wanted: &self.columns, paths: self.paths };
        answer(&*answerer(&loaded.live), &source, &asked)
    }

    fn note_estimates(&self, answers: Answers) -> Answers {
        if answers.estimated
            && let Ok(loaded) = self.context.read_view.view(&self.view)
        {
            self.context.estimated.note(&loaded.live, &self.columns);
        }
        answers
    }
}
