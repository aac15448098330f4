//! Tiles: nested buckets of time in which states are kept, and how few of them cover a window.
//!
//! Times are microseconds since 1970-01-01 UTC; all divisions floor, also before 1970.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use most::most_tiles;

mod most;

/// A point in event time: microseconds since 1970-01-01 UTC.
pub type Micros = i64;

/// A length of time in microseconds. Lengths past the range are the longest one.
pub fn micros(length: Duration) -> Micros {
    Micros::try_from(length.as_micros()).unwrap_or(Micros::MAX)
}

/// The clocks of two processes may differ by this much.
pub const CLOCKS_DIFFER: Duration = Duration::from_secs(600);

/// The current time, passed in by the caller so that code that depends on it can be simulated.
pub type Clock = Arc<dyn Fn() -> Micros + Send + Sync>;

const SECOND: Micros = 1_000_000;
const MINUTE: Micros = 60 * SECOND;
const HOUR: Micros = 60 * MINUTE;
const DAY: Micros = 24 * HOUR;

/// A length of tiles. Each level's length divides the next one's; `All` is the single tile of all time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Level {
    Second1 = 0,
    Seconds10 = 1,
    Minute1 = 2,
    Minutes5 = 3,
    Hour1 = 4,
    Day1 = 5,
    Days8 = 6,
    Days64 = 7,
    All = 8,
}

impl Level {
    /// All levels, finest first.
    pub const LEVELS: [Level; 9] = [
        Level::Second1,
        Level::Seconds10,
        Level::Minute1,
        Level::Minutes5,
        Level::Hour1,
        Level::Day1,
        Level::Days8,
        Level::Days64,
        Level::All,
    ];

    /// Returns the length of this level's tiles in microseconds; `None` for the tile of all time.
    pub fn length_us(self) -> Option<Micros> {
        match self {
            Level::Second1 => Some(SECOND),
            Level::Seconds10 => Some(10 * SECOND),
            Level::Minute1 => Some(MINUTE),
            Level::Minutes5 => Some(5 * MINUTE),
            Level::Hour1 => Some(HOUR),
            Level::Day1 => Some(DAY),
            Level::Days8 => Some(8 * DAY),
            Level::Days64 => Some(64 * DAY),
            Level::All => None,
        }
    }

    /// Returns the level with this code.
    pub fn from_code(code: u8) -> Option<Level> {
        Level::LEVELS.get(code as usize).copied()
    }

    /// The number that state rows and files have for the level.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the start of the tile that holds `time`; 0 for the tile of all time.
    pub fn floor(self, time: Micros) -> Micros {
        match self.length_us() {
            Some(length) => time.div_euclid(length).saturating_mul(length),
            None => 0,
        }
    }

    /// Returns the first tile start at or after `time`.
    pub(crate) fn ceil(self, time: Micros) -> Micros {
        match self.length_us() {
            Some(length) if time.rem_euclid(length) != 0 => self.floor(time).saturating_add(length),
            Some(_) => time,
            None => Micros::MAX,
        }
    }

    /// Returns the hop of a window: the largest of 1 s, 10 s, 1 min, 5 min, 1 h, 1 d that is at most a sixtieth of the
    /// window, but at least 1 s.
    pub fn hop_of(window: Duration) -> Level {
        let sixtieth = (window.as_micros() / 60) as Micros;
        let mut hop = Level::Second1;
        for level in Level::LEVELS.into_iter().filter(|level| *level <= Level::Day1) {
            if level.length_us().is_some_and(|length| length <= sixtieth) {
                hop = level;
            }
        }
        hop
    }
}

/// For each level of a view, finest first: the tile start before which no row is kept; `None` if all are kept.
pub type Floors = Vec<(Level, Option<Micros>)>;

/// Returns the finest level whose tile of this time is kept: no query needs the time at a finer level. A time that no
/// level keeps gets the coarsest level, but never [`Level::All`] if there are others: the start of its one tile
/// identifies no level.
///
/// A floor is a tile start of its level, and a coarser level has a lower floor. So the start of a time's tile at the
/// returned level maps to the same level again.
pub fn finest_kept(floors: &[(Level, Option<Micros>)], time: Micros) -> Level {
    let bounded = || floors.iter().filter(|(level, _)| *level != Level::All);
    let kept = bounded().find(|(_, floor)| floor.is_none_or(|floor| floor <= time));
    kept.or_else(|| bounded().next_back()).map_or(Level::All, |(level, _)| *level)
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Second1 => "1s",
            Level::Seconds10 => "10s",
            Level::Minute1 => "1min",
            Level::Minutes5 => "5min",
            Level::Hour1 => "1h",
            Level::Day1 => "1d",
            Level::Days8 => "8d",
            Level::Days64 => "64d",
            Level::All => "all",
        })
    }
}

/// A range of event time that an aggregate covers: from `window` ago (or all time) up to `until` ago (or without an
/// upper edge). Both edges are rounded down to `hop`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TimeRange {
    /// How far back it reaches; `None` for all time.
    pub window: Option<Duration>,
    /// Where it ends before now; `None` for no upper edge.
    pub until: Option<Duration>,
    pub hop: Level,
}

/// The event times `[from, to)` of a range at one point in time; `None` for unbounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    pub from: Option<Micros>,
    pub to: Option<Micros>,
}

impl TimeRange {
    /// All time: one tile, no edges.
    pub const ALL: TimeRange = TimeRange { window: None, until: None, hop: Level::All };

    /// A trailing window with its default hop, unless `precision` names another.
    pub fn trailing(window: Duration, precision: Option<Level>) -> TimeRange {
        TimeRange { window: Some(window), until: None, hop: precision.unwrap_or_else(|| Level::hop_of(window)) }
    }

    /// From `window` ago (`None`: from the beginning) to `until` ago, with the hop of the smaller bound.
    pub fn between(window: Option<Duration>, until: Duration, precision: Option<Level>) -> TimeRange {
        let smaller = window.map_or(until, |window| window.min(until));
        TimeRange { window, until: Some(until), hop: precision.unwrap_or_else(|| Level::hop_of(smaller)) }
    }

    /// Returns the event times that this range covers at time `t`.
    pub fn at(&self, t: Micros) -> Span {
        let edge = |back: Duration| self.hop.floor(t.saturating_sub(i64::try_from(back.as_micros()).unwrap_or(i64::MAX)));
        Span { from: self.window.map(edge), to: self.until.map(edge) }
    }

    /// Returns the first time after `t` at which an edge of this range moves, where it ends with the time
    /// ([`RowTime::up_to`]); `None` if none does.
    pub fn next_edge(&self, t: Micros) -> Option<Micros> {
        let hop = self.hop.length_us()?;
        let next = |back: Duration| {
            let back = i64::try_from(back.as_micros()).ok()?;
            self.hop.floor(t.saturating_sub(back)).checked_add(hop)?.checked_add(back)
        };
        [self.window, Some(self.until.unwrap_or_default())].into_iter().flatten().filter_map(next).min()
    }

    /// Returns the first time after `t` at which a tile of this range's hop, or of a finer level, comes into the range
    /// or goes out of it, where later tiles are left out ([`RowTime::up_to`]). `None` if it stays as it is.
    pub fn changes_by(&self, tile: Micros, t: Micros) -> Option<Micros> {
        let hop = self.hop.length_us()?;
        let (start, end) = (self.hop.floor(tile), self.hop.floor(tile).checked_add(hop)?);
        let passed = |back: Duration| end.checked_add(i64::try_from(back.as_micros()).ok()?);
        let comes = self.until.map_or(Some(start), passed);
        [comes, self.window.and_then(passed)].into_iter().flatten().filter(|time| *time > t).min()
    }

    /// Returns how long after its event time an event can be in this range: the window, and the hop by which its left
    /// edge may lie before it. `None`: for ever.
    pub fn longest_stay(&self) -> Option<Duration> {
        let hop = self.hop.length_us().and_then(|us| u64::try_from(us).ok()).map_or(Duration::ZERO, Duration::from_micros);
        self.window.map(|window| window.saturating_add(hop))
    }
}

/// The time of a row, and whether events of later tiles count in it too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowTime {
    pub t: Micros,
    has_end: bool,
}

impl RowTime {
    /// A row as it is at `t`, whatever is known of later: a range ends with the tile of its hop in which `t` lies. One
    /// of all time has no tiles, and no end.
    pub fn up_to(t: Micros) -> RowTime {
        RowTime { t, has_end: true }
    }

    /// The event times that a range covers.
    pub fn span(&self, range: &TimeRange) -> Span {
        let span = range.at(self.t);
        let end = || range.hop.floor(self.t).checked_add(range.hop.length_us()?);
        if self.has_end { Span { to: span.to.or_else(end), ..span } } else { span }
    }
}

/// A row for which every event counts that is known, also later ones.
impl From<Micros> for RowTime {
    fn from(t: Micros) -> RowTime {
        RowTime { t, has_end: false }
    }
}

impl Span {
    /// Whether a time lies in the span.
    pub fn contains(&self, time: Micros) -> bool {
        self.from.is_none_or(|from| from <= time) && self.to.is_none_or(|to| time < to)
    }
}

/// For each side, the event time before which events are left out; `None` if none are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EdgesFrom {
    pub near: Option<Micros>,
    pub far: Option<Micros>,
}

impl EdgesFrom {
    /// True if what is kept from here on includes all that is needed.
    pub fn keeps(&self, needed: &EdgesFrom) -> bool {
        // `None` is the smallest option.
        self.near <= needed.near && self.far <= needed.far
    }
}

/// Tiles of one level whose starts lie in `[from, to)`; `None` for unbounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TileRun {
    pub level: Level,
    pub from: Option<Micros>,
    pub to: Option<Micros>,
}

impl TileRun {
    /// Whether a tile is in the run.
    pub fn contains(&self, level: Level, tile: Micros) -> bool {
        level == self.level && self.from.is_none_or(|from| from <= tile) && self.to.is_none_or(|to| tile < to)
    }
}

/// Covers a span with few tiles of the available levels (finest first): to coarser ones from its left edge, and
/// down again to its right edge. Both edges must be tile starts of the finest level.
///
/// Every instant of the span is in exactly one of the returned tiles, and no tile reaches outside the span.
pub fn cover(span: Span, levels: &[Level]) -> Vec<TileRun> {
    // A level has tiles on both sides of those of the next one.
    let mut runs = Vec::with_capacity(2 * levels.len());
    cover_from(span.from, span.to, levels, &mut runs);
    runs
}

/// The largest level, which is the last, takes the whole tiles inside `[from, to)`; finer levels take the remainder on
/// both sides.
fn cover_from(from: Option<Micros>, to: Option<Micros>, levels: &[Level], runs: &mut Vec<TileRun>) {
    if let (Some(from), Some(to)) = (from, to)
        && from >= to
    {
        return;
    }
    let Some((level, finer)) = levels.split_last() else { return };
    if *level == Level::All {
        match (from, to) {
            (None, None) => runs.push(TileRun { level: Level::All, from: None, to: None }),
            _ => cover_from(from, to, finer, runs),
        }
        return;
    }
    let inner_from = from.map(|from| level.ceil(from));
    let inner_to = to.map(|to| level.floor(to));
    if let (Some(inner_from), Some(inner_to)) = (inner_from, inner_to)
        && inner_from >= inner_to
    {
        return cover_from(from, to, finer, runs);
    }
    if let (Some(from), Some(inner_from)) = (from, inner_from) {
        cover_from(Some(from), Some(inner_from), finer, runs);
    }
    runs.push(TileRun { level: *level, from: inner_from, to: inner_to });
    if let (Some(inner_to), Some(to)) = (inner_to, to) {
        cover_from(Some(inner_to), Some(to), finer, runs);
    }
}

#[cfg(test)]
mod tests;
