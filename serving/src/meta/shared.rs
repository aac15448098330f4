//! The meta of lookups: what is the same for all answers from one read view is made once.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use engine::events::format_timestamp;
use types::tiles::Micros;
use types::{Error, Result};

use super::{AskedView, Meta};
use crate::query_context::{EstimatedColumns, QueryContext};
use crate::read_view::{LoadedView, ReadViewId};
use crate::value_errors::ValueErrors;

/// The meta of a lookup of rows: of all columns of one view.
#[derive(Debug)]
pub(crate) enum LookupMeta {
    /// All answers from the layers of a read view have it, each with a time of its own.
    Shared(Arc<SharedMeta>, Micros),
    Own(Box<Meta>),
}

impl LookupMeta {
    /// Without what is found out while rows are made. `columns` are all of the view's.
    pub(crate) fn new(context: &QueryContext, view: &LoadedView, columns: &[usize], kept: &KeptMetas) -> Result<LookupMeta> {
        let meta = || Meta::new(context, &[AskedView { view, columns: Some(columns) }], &[]);
        let Some(id) = &context.read_view_id else { return Ok(LookupMeta::Own(Box::new(meta()))) };
        let shared = kept.get_or_make(id, &view.live.name, || SharedMeta::new(meta()))?;
        Ok(LookupMeta::Shared(shared, context.t(&view.live)))
    }

    /// The same with the columns that turned out to be estimates, and the values that could not be computed.
    pub(crate) fn with_found_out(self, estimated: &EstimatedColumns, errors: &ValueErrors) -> LookupMeta {
        if estimated.is_empty() && errors.is_empty() {
            return self;
        }
        let mut meta = self.into_meta();
        meta.add_found_out(estimated, errors);
        LookupMeta::Own(Box::new(meta))
    }

    pub(crate) fn into_meta(self) -> Meta {
        match self {
            LookupMeta::Shared(shared, as_of) => Meta { as_of, ..shared.meta.clone() },
            LookupMeta::Own(meta) => *meta,
        }
    }

    /// Appends it as JSON.
    pub(crate) fn write(&self, out: &mut Vec<u8>) -> Result<()> {
        match self {
            LookupMeta::Shared(shared, as_of) => {
                let SharedMeta { before_time, after_time, .. } = &**shared;
                let time = format_timestamp(*as_of);
                [before_time, &time, after_time].into_iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
                Ok(())
            }
            LookupMeta::Own(meta) => Ok(serde_json::to_writer(out, meta)?),
        }
    }
}

/// What is the same for every answer about all columns of a view from the layers of one read view. Apart from `as_of`,
/// only what the archive answers depends on the time.
#[derive(Debug)]
pub(crate) struct SharedMeta {
    /// With the time of the first answer.
    meta: Meta,
    /// Its JSON before the time, and after it.
    before_time: String,
    after_time: String,
}

impl SharedMeta {
    fn new(meta: Meta) -> Result<SharedMeta> {
        const TIME: &str = "\"as_of\":\"";
        let json = serde_json::to_string(&meta)?;
        // Only the cut is before the time: a token, which has no quotes.
        let at_time = json.split_once(TIME).and_then(|(cut, rest)| Some((cut, rest.split_once('"')?)));
        let Some((cut, (_, rest))) = at_time else { return Err(Error::internal("the JSON of a meta has no time")) };
        Ok(SharedMeta { before_time: format!("{cut}{TIME}"), after_time: format!("\"{rest}"), meta })
    }
}

/// The shared metas of the read view that lookups read last. The next micro-batch makes another one.
#[derive(Debug, Default)]
pub(crate) struct KeptMetas(RwLock<MetasOfReadView>);

#[derive(Debug, Default)]
struct MetasOfReadView {
    id: ReadViewId,
    by_view: BTreeMap<Arc<str>, Arc<SharedMeta>>,
}

impl KeptMetas {
    /// Returns the shared meta of a view in this read view, which is made by the first answer.
    fn get_or_make(&self, id: &ReadViewId, view: &Arc<str>, make: impl FnOnce() -> Result<SharedMeta>) -> Result<Arc<SharedMeta>> {
        let known = {
            let kept = self.0.read().unwrap_or_else(PoisonError::into_inner);
            if kept.id == *id { kept.by_view.get(view).cloned() } else { None }
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let made = Arc::new(make()?);
        let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if kept.id != *id {
            *kept = MetasOfReadView { id: id.clone(), by_view: BTreeMap::new() };
        }
        kept.by_view.insert(view.clone(), made.clone());
        Ok(made)
    }
}
