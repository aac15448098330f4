//! A lookup: rows by their keys. HTTP and the command line come through `look_up`, SQL through `fetch` and `rows`.
//! The files are the steps.
//!
//! ```text
//! context: take a read view that counts what is asked
//!   --> keys, paths, checked: read and check what is asked
//!   --> fetch: wait for the buckets that are needed
//!   --> rows: answer, here or on the pool
//! views: the same steps for the keys of several views
//! ```
//!
//! A lookup never scans, unless the kept tiles do not answer its time: then the archive does.

use std::time::Instant;

use access::Principal;
use arrow::array::RecordBatch;
use types::Result;
use types::tiles::Micros;

use crate::follower::{AwaitedPosition, Follower};
use crate::meta::{LookupMeta, Meta};
use crate::query_context::QueryContext;
use crate::query_runtime::QueryRuntime;
use crate::read_view::LoadedView;

mod checked;
mod context;
mod fetch;
mod keys;
mod paths;
mod rows;
mod views;

pub use checked::MAX_KEYS;
pub(crate) use fetch::fetch;
pub(crate) use keys::with_zones_plus;
pub use keys::{Keys, encoded_keys};
pub use paths::{AskedPaths, MAX_PATHS};
pub(crate) use rows::KeyRows;
pub use views::{ViewKeys, ViewRows, ViewsResponse};
pub(crate) use views::{ViewsRequest, look_up_views};

use checked::{CheckedLookup, all_columns, checked};
use context::{context_after, place};

/// The answer of a lookup, in the order of the keys asked.
#[derive(Debug, Clone)]
pub struct Response<M = Meta> {
    /// All columns of the view. A key that is not found has a row too: its counts are 0, the rest is NULL.
    pub rows: RecordBatch,
    pub found: Vec<bool>,
    /// The linking paths of a linked view's keys, in the order of the keys, where they were asked for.
    pub paths: Option<RecordBatch>,
    pub meta: M,
}

impl Response<LookupMeta> {
    pub(crate) fn with_meta(self) -> Response {
        let Response { rows, found, paths, meta } = self;
        Response { rows, found, paths, meta: meta.into_meta() }
    }
}

/// What a lookup asks.
#[derive(Clone)]
pub(crate) struct Request<'a> {
    pub(crate) view: &'a str,
    pub(crate) keys: Keys,
    pub(crate) as_of: Option<Micros>,
    /// The answer counts everything before this position.
    pub(crate) after: Option<AwaitedPosition<'a>>,
    pub(crate) paths: AskedPaths,
    /// Who asks. A lookup that needs the archive waits for its turn.
    pub(crate) principal: &'a Principal,
}

/// Answers a lookup from the read view of this moment.
pub(crate) async fn look_up(follower: &Follower, runtime: &QueryRuntime, request: Request<'_>) -> Result<Response<LookupMeta>> {
    let begun = Instant::now();
    let context = context_after(follower, request.as_of, &[request.view], request.after).await?;
    let read_view = context.read_view.clone();
    let loaded = read_view.known_view(request.view)?;
    let (name, is_copying) = (loaded.live.name.clone(), loaded.copying().is_some());
    let answer = match is_copying {
        true => {
            // The view may be answered from another read view.
            drop(read_view);
            // Boxed to keep the common future small.
            Box::pin(answer_while_copying(follower, runtime, context, request)).await
        }
        false => {
            let asked = checked(&read_view, loaded, request.keys, &request.paths)?;
            answer(runtime, context, loaded, request.principal, asked).await
        }
    };
    let response = follower.report_damage(answer).await?;
    runtime.lookup_times().record(&name, begun);
    Ok(response)
}

/// `loaded` is the view in the context's read view.
async fn answer(
    runtime: &QueryRuntime,
    context: QueryContext,
    loaded: &LoadedView,
    principal: &Principal,
    CheckedLookup { keys, paths }: CheckedLookup,
) -> Result<Response<LookupMeta>> {
    let place = place(runtime, &context, principal, &[loaded]).await?;
    let columns = all_columns(loaded);
    let meta = LookupMeta::new(&context, loaded, &columns, runtime.kept_metas())?;
    let (estimated, errors) = (context.estimated.clone(), context.errors.clone());
    let key_rows = KeyRows { context, view: loaded.live.name.clone(), keys, columns, paths };
    let answers = key_rows.answer_in(loaded, runtime).await?;
    drop(place);
    let meta = meta.with_found_out(&estimated, &errors);
    Ok(Response { rows: answers.rows, found: answers.found, paths: answers.paths, meta })
}

/// The same, once the buckets that the keys need are copied. If the snapshot turns out to be damaged, it is answered
/// from another read view.
async fn answer_while_copying(
    follower: &Follower,
    runtime: &QueryRuntime,
    mut context: QueryContext,
    request: Request<'_>,
) -> Result<Response<LookupMeta>> {
    loop {
        let read_view = context.read_view.clone();
        let loaded = read_view.view(request.view)?;
        let asked = checked(&read_view, loaded, request.keys.clone(), &request.paths)?;
        match fetch(&context, loaded, Some(&asked.keys)).await {
            Ok(()) => return answer(runtime, context, loaded, request.principal, asked).await,
            Err(error) if follower.reload_without_damaged(&read_view.loaded, &error).await? => {
                context = context_after(follower, request.as_of, &[request.view], request.after).await?;
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
