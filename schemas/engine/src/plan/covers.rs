//! The tiles that cover a view's ranges. They depend on the edges of the ranges, which move once per hop, but every
//! answer needs them: the last ones are kept.

use std::sync::{Arc, PoisonError, RwLock};

use crate::plan::ViewPlan;
use types::tiles::{Level, RowTime, Span, TileRun, cover};

/// The tiles that cover a span, in the order of state rows.
#[derive(Debug)]
pub(crate) struct Cover {
    span: Span,
    /// In a layer that holds every level.
    pub(crate) rolled_up: Vec<TileRun>,
    /// In a layer that holds the finest level only.
    pub(crate) finest: Vec<TileRun>,
}

impl Cover {
    /// Covers a span with tiles of these levels, finest first.
    pub(crate) fn new(span: Span, levels: &[Level]) -> Cover {
        Cover { span, rolled_up: runs_of(span, levels), finest: runs_of(span, &levels[..1]) }
    }
}

/// Returns the cover of a span, in the order of state rows.
fn runs_of(span: Span, levels: &[Level]) -> Vec<TileRun> {
    let mut runs = cover(span, levels);
    runs.sort_unstable_by_key(|run| (run.level, run.from));
    runs
}

/// One for each range of a view. Ranges whose edges have not moved keep theirs.
type Covers = Arc<[Arc<Cover>]>;

impl ViewPlan {
    /// The covers of all ranges at a time, by [`RangeIndex`](crate::plan::RangeIndex).
    pub(crate) fn covers(&self, time: impl Into<RowTime>) -> Covers {
        let time = time.into();
        let spans = || self.ranges.iter().map(move |range| time.span(range));
        let last = self.last_covers.get();
        if last.iter().map(|cover| cover.span).eq(spans()) {
            return last;
        }
        let cover_of = |(range, span): (usize, Span)| match last.get(range) {
            Some(last) if last.span == span => last.clone(),
            _ => Arc::new(Cover::new(span, &self.levels)),
        };
        let covers: Covers = spans().enumerate().map(cover_of).collect();
        self.last_covers.set(covers.clone());
        covers
    }
}

/// The covers that a plan was last asked for.
#[derive(Debug, Default)]
pub(super) struct LastCovers(RwLock<Covers>);

impl LastCovers {
    fn get(&self) -> Covers {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, covers: Covers) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = covers;
    }
}

/// A copy of a plan begins without covers: its levels may be changed before it is used.
impl Clone for LastCovers {
    fn clone(&self) -> LastCovers {
        LastCovers::default()
    }
}
