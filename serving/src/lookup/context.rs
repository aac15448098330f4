//! Chooses the read view from which a lookup is answered, and waits for the lookup's turn.

use access::Principal;
use types::Result;
use types::tiles::Micros;

use crate::admission::Place;
use crate::follower::{AwaitedPosition, CountedEvents, Follower};
use crate::query_context::QueryContext;
use crate::query_runtime::QueryRuntime;
use crate::read_view::LoadedView;
use crate::value_errors::OnValueError;

/// The context of a lookup of these views that counts everything before the position `after`. If the archive has to
/// answer, which has what is committed, it waits until that is committed.
pub(super) async fn context_after(
    follower: &Follower,
    as_of: Option<Micros>,
    views: &[impl AsRef<str> + Sync],
    after: Option<AwaitedPosition<'_>>,
) -> Result<QueryContext> {
    let context = || {
        let (read_view, id) = follower.identified_read_view()?;
        Ok(QueryContext::new(read_view, as_of, views)?.identified(id).on_value_error(OnValueError::List))
    };
    let Some(after) = after else { return context() };
    // Boxed to keep the common future small.
    let counting = Box::pin(async {
        follower.wait_for(after, CountedEvents::WithFresh).await?;
        let found = context()?;
        if found.read_view.vector.covers(after.position) {
            return Ok(found);
        }
        // It keeps the files of its read view.
        drop(found);
        follower.wait_for(after, CountedEvents::Committed).await?;
        context()
    });
    counting.await
}

/// Waits for its turn where one of these views is answered from the archive.
pub(super) async fn place(
    runtime: &QueryRuntime,
    context: &QueryContext,
    principal: &Principal,
    views: &[&LoadedView],
) -> Result<Option<Place>> {
    match views.iter().any(|view| context.needs_archive(view)) {
        true => Ok(Some(runtime.admission().place(principal).await?)),
        false => Ok(None),
    }
}
