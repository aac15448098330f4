//! A lookup of keys of several views. All of them are answered from one read view, one after the other: the answer has
//! one position, and one time where one is asked for.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use access::Principal;
use arrow::array::RecordBatch;
use types::tiles::Micros;
use types::{Error, Result};

use super::checked::{CheckedLookup, all_columns, check_count, checked};
use super::context::{context_after, place};
use super::fetch::fetch;
use super::keys::Keys;
use super::paths::AskedPaths;
use super::rows::KeyRows;
use crate::follower::{AwaitedPosition, Follower};
use crate::meta::{AskedView, Meta};
use crate::query_context::QueryContext;
use crate::query_runtime::QueryRuntime;

/// Keys of one of several views.
#[derive(Debug, Clone)]
pub struct ViewKeys {
    pub view: Arc<str>,
    pub keys: Keys,
}

/// The rows of one of several views, in the order of its keys.
#[derive(Debug, Clone)]
pub struct ViewRows {
    pub view: Arc<str>,
    /// As [`Response::rows`](super::Response::rows).
    pub rows: RecordBatch,
    pub found: Vec<bool>,
}

/// The answer of a lookup of several views, in the order in which they were asked.
#[derive(Debug, Clone)]
pub struct ViewsResponse {
    pub views: Vec<ViewRows>,
    /// Of all of them.
    pub meta: Meta,
}

/// What a lookup of several views asks.
pub(crate) struct ViewsRequest<'a> {
    pub(crate) views: Vec<ViewKeys>,
    pub(crate) as_of: Option<Micros>,
    /// The answer counts everything before this position.
    pub(crate) after: Option<AwaitedPosition<'a>>,
    /// Who asks. A lookup that needs the archive waits for its turn.
    pub(crate) principal: &'a Principal,
}

/// What is asked of a view, as its version has it.
struct Asked {
    view: Arc<str>,
    checked: CheckedLookup,
}

/// Answers a lookup of several views from the read view of this moment, once the buckets that the keys need are copied.
/// If a snapshot turns out to be damaged, it is answered from another read view.
pub(crate) async fn look_up_views(follower: &Follower, runtime: &QueryRuntime, request: ViewsRequest<'_>) -> Result<ViewsResponse> {
    let ViewsRequest { views, as_of, after, principal } = request;
    check_names(&views)?;
    check_count(views.iter().map(|asked| asked.keys.len()).sum())?;
    let names: Vec<Arc<str>> = views.iter().map(|asked| asked.view.clone()).collect();
    loop {
        let context = context_after(follower, as_of, &names, after).await?;
        let asked = all_checked(&context, &views)?;
        match fetch_all(&context, &asked).await {
            Ok(()) => return follower.report_damage(answer(runtime, context, principal, asked).await).await,
            Err(error) if follower.reload_without_damaged(&context.read_view.loaded, &error).await? => {}
            Err(error) => return follower.report_damage(Err(error)).await,
        }
    }
}

fn check_names(views: &[ViewKeys]) -> Result<()> {
    let mut names: HashSet<&str> = HashSet::with_capacity(views.len());
    match views.iter().find(|asked| !names.insert(&asked.view)) {
        Some(again) => Err(Error::input(format!("the view \"{}\" is named twice: expected each view once, with all its keys", again.view))),
        None => Ok(()),
    }
}

fn all_checked(context: &QueryContext, views: &[ViewKeys]) -> Result<Vec<Asked>> {
    let one = |ViewKeys { view, keys }: &ViewKeys| {
        let read_view = &context.read_view;
        let checked = checked(read_view, read_view.known_view(view)?, keys.clone(), &AskedPaths::default());
        Ok(Asked { view: view.clone(), checked: checked.map_err(|error| error.with("view", view))? })
    };
    views.iter().map(one).collect()
}

async fn fetch_all(context: &QueryContext, asked: &[Asked]) -> Result<()> {
    for Asked { view, checked } in asked {
        fetch(context, context.read_view.known_view(view)?, Some(&checked.keys)).await?;
    }
    Ok(())
}

async fn answer(runtime: &QueryRuntime, context: QueryContext, principal: &Principal, asked: Vec<Asked>) -> Result<ViewsResponse> {
    let loaded = asked.iter().map(|asked| context.read_view.known_view(&asked.view)).collect::<Result<Vec<_>>>()?;
    let place = place(runtime, &context, principal, &loaded).await?;
    let columns: Vec<Vec<usize>> = loaded.iter().map(|view| all_columns(view)).collect();
    let mut meta = {
        let of_views = loaded.iter().zip(&columns).map(|(view, columns)| AskedView { view, columns: Some(columns) });
        Meta::new(&context, &of_views.collect::<Vec<_>>(), &[])
    };
    let mut views = Vec::with_capacity(asked.len());
    for ((Asked { view, checked: CheckedLookup { keys, paths } }, columns), loaded) in asked.into_iter().zip(columns).zip(loaded) {
        let begun = Instant::now();
        let key_rows = KeyRows { context: context.clone(), view: view.clone(), keys, columns, paths };
        let answers = key_rows.answer_in(loaded, runtime).await?;
        runtime.lookup_times().record(&view, begun);
        views.push(ViewRows { view, rows: answers.rows, found: answers.found });
    }
    drop(place);
    meta.add_found_out(&context.estimated, &context.errors);
    Ok(ViewsResponse { views, meta })
}
