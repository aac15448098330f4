//! Answers the rows of some keys: on the thread that asks if that takes less than about a millisecond, else on the pool
//! for blocking work. Concurrent lookups of a hot key share work: one merges, the others reuse its result or finished
//! row.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray};
use datafusion::common::ScalarValue;
use engine::walk::CancelCheck;
use tokio_util::task::AbortOnDropHandle;
use types::{Result, threads};

use super::keys;
use crate::answerer::{Answerer, AskedKeys, StateSource, WantedPaths, answerer};
use crate::answers::Answers;
use crate::archive::{ArchiveLayer, archive_layer};
use crate::blocking_pool::CancelOnDrop;
use crate::hot_keys::MAX_COUNTED_KEYS;
use crate::kept_keys::{KeptKeys, KeyName};
use crate::query_context::QueryContext;
use crate::query_runtime::QueryRuntime;
use crate::read_view::LoadedView;
use crate::row_cache::{RowName, RowValidity};

/// Keys of one view whose rows are asked for, by a lookup or by the lookup path of SQL.
pub(crate) struct KeyRows {
    /// Its read view has the view: that was checked when it was made.
    pub(crate) context: QueryContext,
    pub(crate) view: Arc<str>,
    /// Each has the values of the view's keys, in their order and of their types.
    pub(crate) keys: Vec<Vec<ScalarValue>>,
    /// Indices of the plan's columns.
    pub(crate) columns: Vec<usize>,
    pub(crate) paths: WantedPaths,
}

/// The keys as columns.
pub(crate) struct KeyColumns {
    columns: Vec<ArrayRef>,
    /// Each key as bytes, where the keys were counted.
    encoded: Option<BinaryArray>,
}

impl KeyRows {
    pub(crate) async fn answer(self, runtime: &QueryRuntime) -> Result<Answers> {
        let read_view = self.context.read_view.clone();
        let view = read_view.known_view(&self.view)?;
        self.answer_in(view, runtime).await
    }

    /// The same where the view was found in the read view already.
    pub(super) async fn answer_in(self, view: &LoadedView, runtime: &QueryRuntime) -> Result<Answers> {
        let mut columns = self.key_columns(view)?;
        let needs_archive = self.context.needs_archive(view);
        let name = self.hot_row(view, &mut columns, runtime)?.filter(|_| !needs_archive);
        let Some(name) = name else { return self.answer_anew(view, columns, needs_archive, runtime).await };
        let known = runtime.rows().get(&name);
        let validity = self.ask(view, &columns, None, None, |answerer, source, asked| {
            answerer.row_validity(source, asked, known.as_ref().map(|known| &known.basis))
        })?;
        if let (RowValidity::Same, Some(known)) = (&validity, known) {
            runtime.rows().count_hit();
            return self.noted(view, known.answers.clone());
        }
        runtime.rows().count_miss();
        let answers = self.answer_anew(view, columns, needs_archive, runtime).await?;
        if let RowValidity::New(basis) = validity {
            runtime.rows().put(name, basis, &answers);
        }
        Ok(answers)
    }

    /// Counts the keys that are asked for. Returns the name of the row in the cache, if it is the row of a hot key.
    fn hot_row(&self, loaded: &LoadedView, columns: &mut KeyColumns, runtime: &QueryRuntime) -> Result<Option<RowName>> {
        if self.keys.len() > MAX_COUNTED_KEYS {
            return Ok(None);
        }
        let view = loaded.live.view_version();
        let keys = columns.encoded.insert(answerer(&loaded.live).encode(&columns.columns, self.keys.len())?);
        let is_hot = runtime.hot().count_lookup(&view, keys, self.context.read_view.now)?;
        let is_kept = is_hot && self.paths.most == 0 && self.context.as_of.is_none() && runtime.rows().is_used();
        Ok(is_kept.then(|| RowName { key: KeyName { view, key: keys.value(0).into() }, columns: self.columns.as_slice().into() }))
    }

    async fn answer_anew(self, view: &LoadedView, columns: KeyColumns, needs_archive: bool, runtime: &QueryRuntime) -> Result<Answers> {
        if !needs_archive && let Some(answers) = self.rows_if_quick(view, &columns, runtime.kept_keys())? {
            return Ok(answers);
        }
        let runtime = runtime.clone();
        let apart = threads::QUERIES.spawn(async move { self.answer_apart(columns, needs_archive, runtime).await });
        AbortOnDropHandle::new(apart).await?
    }

    /// Answers what takes longer, away from the threads that answer HTTP.
    async fn answer_apart(self, columns: KeyColumns, needs_archive: bool, runtime: QueryRuntime) -> Result<Answers> {
        let view = self.view()?;
        let archive = match needs_archive {
            true => Some(archive_layer(&runtime, &view.live, &self.context, self.only_key(view)).await?),
            false => None,
        };
        let turn = match self.kept_key(view, &columns)?.filter(|_| !needs_archive) {
            Some(key) => Some(runtime.kept_keys().turn(&key).lock_owned().await),
            None => None,
        };
        // An earlier lookup of the same key may have merged it in the meantime.
        if turn.is_some()
            && let Some(answers) = self.rows_if_quick(view, &columns, runtime.kept_keys())?
        {
            return Ok(answers);
        }
        let pool = runtime.lookups().clone();
        let merge = move |cancelled: &CancelOnDrop| {
            // Held until the merge has ended, even if the client has gone.
            let _turn = turn;
            self.rows(&columns, archive.as_ref(), Some(runtime.kept_keys()), &|| cancelled.check())
        };
        pool.run(merge).await
    }

    /// The key that is asked for, if it is only one. A linked view may need any event, so it returns `None`.
    fn only_key(&self, view: &LoadedView) -> Option<&[ScalarValue]> {
        match self.keys.as_slice() {
            [key] if !key.is_empty() && !answerer(&view.live).follows_links() => Some(key),
            _ => None,
        }
    }

    pub(crate) fn view(&self) -> Result<&LoadedView> {
        self.context.read_view.known_view(&self.view)
    }

    pub(crate) fn key_columns(&self, view: &LoadedView) -> Result<KeyColumns> {
        Ok(KeyColumns { columns: keys::columns(view.live.plan.answer_keys(), &self.keys)?, encoded: None })
    }

    fn kept_key(&self, view: &LoadedView, columns: &KeyColumns) -> Result<Option<KeyName>> {
        self.ask(view, columns, None, None, |answerer, _, asked| answerer.kept_key(asked))
    }

    fn rows_if_quick(&self, view: &LoadedView, columns: &KeyColumns, kept: &KeptKeys) -> Result<Option<Answers>> {
        self.ask(view, columns, None, Some(kept), |answerer, source, asked| answerer.rows_if_quick(source, asked))
            .and_then(|answers| answers.map(|answers| self.noted(view, answers)).transpose())
    }

    /// Answers the rows. It ends with the error of `cancel_check`, if that returns one.
    pub(crate) fn rows(
        &self,
        columns: &KeyColumns,
        archive: Option<&ArchiveLayer>,
        kept: Option<&KeptKeys>,
        cancel_check: &CancelCheck<'_>,
    ) -> Result<Answers> {
        let view = self.view()?;
        self.ask(view, columns, archive, kept, |answerer, source, asked| answerer.rows(source, asked, cancel_check))
            .and_then(|answers| self.noted(view, answers))
    }

    fn ask<T>(
        &self,
        view: &LoadedView,
        columns: &KeyColumns,
        archive: Option<&ArchiveLayer>,
        kept: Option<&KeptKeys>,
        answer: impl FnOnce(&dyn Answerer, &StateSource<'_>, &AskedKeys<'_>) -> Result<T>,
    ) -> Result<T> {
        let source = StateSource::new(&self.context.read_view, view, archive);
        let (keys, t) = (self.keys.len(), self.context.t(&view.live));
        let KeyColumns { columns, encoded } = columns;
        let asked = AskedKeys { columns, encoded: encoded.as_ref(), keys, t, wanted: &self.columns, paths: self.paths, kept };
        answer(&*answerer(&view.live), &source, &asked)
    }

    /// Notes in the context what turned out to be estimated or could not be computed.
    fn noted(&self, view: &LoadedView, answers: Answers) -> Result<Answers> {
        if answers.estimated {
            self.context.estimated.note(&view.live, &self.columns);
        }
        self.context.errors.take(&view.live, &answers.failed)?;
        Ok(answers)
    }
}
