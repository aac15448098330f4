//! Answers in pages: `page_rows` in a query answers one page, and `next`, the cursor of the page after it. All pages
//! are those of one execution over one read view, made as they are asked for.
//!
//! A cursor is for one page. Asked again it is refused: its rows were sent, and are not kept. An answer that is not
//! asked for a while ends, and with it what it holds: a batch in memory, the files of its read view.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use access::Principal;
use arrow::array::RecordBatch;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;
use types::{Error, Result, threads};
use uuid::Uuid;

use super::App;
use super::apart::apart;
use super::input::{Name, json_bytes};
use super::problem::HttpProblem;
use super::room::append_to_page;
use crate::json::RowWriter;
use crate::limits::ServingLimits;
use crate::sql::QueryResponse;

/// A page may have this many rows.
pub(super) const MAX_PAGE_ROWS: usize = 100_000;
/// This many answers may be open, of all principals.
const MAX_OPEN: usize = 1024;
/// Of this many answers that ended it is known why.
const MAX_ENDED: usize = 4096;

/// The answers that are open. Cheap to clone.
#[derive(Clone)]
pub(super) struct Cursors(Arc<Inner>);

struct Inner {
    per_principal: usize,
    idle: Duration,
    state: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    open: HashMap<Uuid, OpenCursor>,
    /// The last ones that ended, and why.
    ended: VecDeque<(Uuid, &'static str)>,
}

struct OpenCursor {
    principal: Arc<Principal>,
    /// The page that its cursor is for.
    page: u64,
    /// `None` while a page is made.
    rest: Option<Box<Pages>>,
    used: Instant,
    /// Ends it when it is not asked for a while.
    _watch: AbortOnDropHandle<()>,
}

/// What is left of an answer.
pub(super) struct Pages {
    response: QueryResponse,
    page_rows: usize,
    writer: RowWriter,
    batch: Option<RecordBatch>,
}

const COMPLETE: &str = "all of its pages were sent";
const CLOSED: &str = "it was ended by a DELETE";
const IDLE: &str = "its next page was not asked for in time";
const BROKE_OFF: &str = "a page of it was not made to its end";

impl Cursors {
    pub(super) fn new(limits: &ServingLimits) -> Self {
        let (per_principal, idle) = (limits.cursors_per_principal, limits.cursor_idle);
        Self(Arc::new(Inner { per_principal, idle, state: Mutex::default() }))
    }

    /// Answers the first page.
    pub(super) async fn first(&self, principal: Arc<Principal>, mut pages: Pages) -> Result<Vec<u8>> {
        let page = pages.make().await?;
        if !page.has_more {
            return page.end(None, &pages);
        }
        let id = Uuid::new_v4();
        let body = page.end(Some(&token(id, 1)), &pages)?;
        pages.response.turn.pause();
        let watch = AbortOnDropHandle::new(threads::QUERIES.spawn(watch(Arc::downgrade(&self.0), id, self.0.idle)));
        let mut known = self.0.lock();
        self.room(&known, &principal)?;
        let open = OpenCursor { principal, page: 1, rest: Some(Box::new(pages)), used: Instant::now(), _watch: watch };
        known.open.insert(id, open);
        show(&known);
        Ok(body)
    }

    /// Errors: `Busy` where a principal, or all of them, have as many answers open as may be.
    pub(super) fn check_room(&self, principal: &Principal) -> Result<()> {
        self.room(&self.0.lock(), principal)
    }

    fn room(&self, known: &Known, principal: &Principal) -> Result<()> {
        let of_principal = known.open.values().filter(|open| open.principal.name == principal.name).count();
        has_room(of_principal, self.0.per_principal, known.open.len())
    }

    /// Answers the page that a cursor is for.
    async fn next(&self, principal: &Arc<Principal>, cursor: &str) -> Result<Vec<u8>, HttpProblem> {
        let (id, number) = read(cursor)?;
        let mut pages = self.take(principal, id, number)?;
        // Dropped before the end, it ends the answer: rows that are gone must not be left out in silence.
        let mut making = Making { cursors: self, id, ends: Some(BROKE_OFF) };
        let page = pages.make().await?;
        let next = page.has_more.then(|| token(id, number + 1));
        let body = page.end(next.as_deref(), &pages)?;
        pages.response.turn.pause();
        match next {
            None => making.ends = Some(COMPLETE),
            Some(_) => {
                if let Some(open) = self.0.lock().open.get_mut(&id) {
                    (open.page, open.rest, open.used) = (number + 1, Some(pages), Instant::now());
                }
                making.ends = None;
            }
        }
        Ok(body)
    }

    fn take(&self, principal: &Arc<Principal>, id: Uuid, number: u64) -> Result<Box<Pages>, HttpProblem> {
        let mut known = self.0.lock();
        let Some(open) = known.open.get_mut(&id).filter(|open| open.principal == *principal) else {
            return Err(gone(&known, id));
        };
        match open.rest.take() {
            Some(pages) if open.page == number => Ok(pages),
            Some(pages) => {
                open.rest = Some(pages);
                Err(HttpProblem::plain(StatusCode::GONE, "the cursor is for a page that was sent: use the `next` of that page"))
            }
            None => Err(Error::conflict("another request is reading this page: send one at a time").into()),
        }
    }

    fn end(&self, id: Uuid, why: &'static str) {
        self.0.end(id, why);
    }
}

/// Whether a principal that has `of_principal` answers open, of `per_principal` that it may have, may open one more
/// beside the `open` ones of all. Only the bound for each can be set.
fn has_room(of_principal: usize, per_principal: usize, open: usize) -> Result<()> {
    if of_principal >= per_principal {
        let message = "too many answers in pages are open: read them to their end, or end them with DELETE /v1/sql/cursors/{cursor}";
        return Err(Error::busy(message).with("limit", "serving.limits.cursors_per_principal").with("open", of_principal));
    }
    if open >= MAX_OPEN {
        let message = "all callers together have too many answers in pages open: ask again when some have ended";
        return Err(Error::busy(message).with("open", open));
    }
    Ok(())
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, id: Uuid, why: &'static str) {
        let mut known = self.lock();
        let ended = known.open.remove(&id);
        if ended.is_some() {
            known.ended.truncate(MAX_ENDED - 1);
            known.ended.push_front((id, why));
        }
        show(&known);
        drop(known);
        // Not under the lock: it may let go of much.
        drop(ended);
    }
}

/// A page under way.
struct Making<'a> {
    cursors: &'a Cursors,
    id: Uuid,
    /// Why the answer ends with it, if it does.
    ends: Option<&'static str>,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        if let Some(why) = self.ends {
            self.cursors.end(self.id, why);
        }
    }
}

/// Ends an answer once it was not asked for longer than `idle`.
async fn watch(cursors: Weak<Inner>, id: Uuid, idle: Duration) {
    let mut until = Instant::now() + idle;
    loop {
        sleep_until(until).await;
        let Some(cursors) = cursors.upgrade() else { return };
        let now = Instant::now();
        until = match cursors.lock().open.get(&id) {
            None => return,
            // Its page is being made.
            Some(OpenCursor { rest: None, .. }) => now + idle,
            Some(open) => open.used + idle,
        };
        if until <= now {
            return cursors.end(id, IDLE);
        }
    }
}

/// A page as it is made: rows, without the end of the document.
struct CursorPage {
    out: Vec<u8>,
    has_more: bool,
}

impl CursorPage {
    fn end(mut self, next: Option<&str>, pages: &Pages) -> Result<Vec<u8>> {
        self.out.extend_from_slice(b"],\"next\":");
        serde_json::to_writer(&mut self.out, &next)?;
        self.out.extend_from_slice(b",\"meta\":");
        serde_json::to_writer(&mut self.out, &pages.response.meta_so_far())?;
        self.out.push(b'}');
        Ok(self.out)
    }
}

impl Pages {
    pub(super) fn new(response: QueryResponse, page_rows: usize) -> Self {
        let writer = RowWriter::new(&response.schema);
        Self { response, page_rows, writer, batch: None }
    }

    /// Makes a page: as many rows as were asked for, or as have room in an answer.
    async fn make(&mut self) -> Result<CursorPage> {
        let (mut out, mut rows) = (b"{\"rows\":[".to_vec(), 0);
        while rows < self.page_rows && self.fill().await? {
            let Some(batch) = &self.batch else { break };
            if !append_to_page(&mut out, &self.writer, batch, 0, rows == 0)? {
                break;
            }
            rows += 1;
            self.batch = (batch.num_rows() > 1).then(|| batch.slice(1, batch.num_rows() - 1));
        }
        let has_more = self.fill().await?;
        let held = self.batch.as_ref().map_or(0, RecordBatch::get_array_memory_size);
        self.response.hold(held)?;
        Ok(CursorPage { out, has_more })
    }

    /// Waits until there is a row. Returns false after the last one.
    async fn fill(&mut self) -> Result<bool> {
        while self.batch.is_none() {
            match self.response.batches.next().await.transpose()? {
                Some(batch) => self.batch = Some(batch).filter(|batch| batch.num_rows() > 0),
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

fn token(id: Uuid, page: u64) -> String {
    format!("{}.{page}", id.simple())
}

fn read(cursor: &str) -> Result<(Uuid, u64), HttpProblem> {
    let read = cursor.split_once('.').and_then(|(id, page)| Some((Uuid::try_parse(id).ok()?, page.parse().ok()?)));
    read.ok_or_else(|| Error::not_found("there is no such cursor: expected the `next` of a page").into())
}

fn gone(known: &Known, id: Uuid) -> HttpProblem {
    match known.ended.iter().find(|(ended, _)| *ended == id) {
        Some((_, why)) => HttpProblem::plain(StatusCode::GONE, format!("the answer in pages has ended: {why}; run the query again")),
        None => Error::not_found("there is no such cursor: it was never made, made for another principal, or ended long ago").into(),
    }
}

fn show(known: &Known) {
    metrics::gauge!("basestream_serving_cursors").set(known.open.len() as f64);
}

/// `POST /v1/sql/cursors/{cursor}`
pub(super) async fn next(
    State(app): State<App>,
    Extension(principal): Extension<Arc<Principal>>,
    Name(cursor): Name,
) -> Result<Response, HttpProblem> {
    apart(async move { Ok(json_bytes(app.cursors.next(&principal, &cursor).await?)) }).await
}

/// `DELETE /v1/sql/cursors/{cursor}`: of any page.
pub(super) async fn end(
    State(app): State<App>,
    Extension(principal): Extension<Arc<Principal>>,
    Name(cursor): Name,
) -> Result<Response, HttpProblem> {
    let (id, _) = read(&cursor)?;
    let known = app.cursors.0.lock();
    if known.open.get(&id).is_none_or(|open| open.principal != principal) {
        return Err(gone(&known, id));
    }
    drop(known);
    app.cursors.end(id, CLOSED);
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[cfg(test)]
mod tests;
