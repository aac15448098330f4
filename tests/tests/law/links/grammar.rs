//! Generates SELECTs over a JOIN that a view supports, as values, so that a loop can answer them as well as SQL.

use proptest::prelude::*;

mod sql;

pub use sql::STAGING;

/// A view over two streams, or over one stream joined with itself. `c` is the side of the group keys, `l` the other.
#[derive(Debug, Clone)]
pub struct View {
    pub windows: Vec<&'static str>,
    pub c: Source,
    pub l: Source,
    /// `l` is first in FROM.
    pub swapped: bool,
    pub join: Join,
    pub group: &'static [Of],
    pub wheres: Vec<Condition>,
    pub columns: Vec<Column>,
}

/// The source of a side: one of the two streams, directly, through a staging view or through a subquery.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    pub stream: usize,
    pub through: Through,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Through {
    Nothing,
    /// `WHERE x IS DISTINCT FROM 3`
    Staging,
    /// `WHERE j IS NOT NULL`
    Subquery,
}

#[derive(Debug, Clone, Copy)]
pub struct Join {
    pub keys: &'static [(Of, Of)],
    pub spelled: Spelled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelled {
    On,
    /// For keys that have the same name on both sides.
    Using,
    Where,
}

/// An expression over one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    K,
    UpperK,
    J,
    U,
    UpperU,
    W,
    X,
    D,
    F,
    O,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    C,
    L,
}

#[derive(Debug, Clone, Copy)]
pub enum Condition {
    One(Side, OneSided),
    /// `c.. <> l..`
    Apart(Of, Of),
}

#[derive(Debug, Clone, Copy)]
pub enum OneSided {
    /// `x > 0`
    Positive,
    /// `k IS NOT NULL`
    HasKey,
    /// `(d < 500 OR o)`
    CheapOrOpen,
    /// `u <> 'b'`
    NotB,
}

#[derive(Debug, Clone)]
pub struct Column {
    pub aggregate: Aggregate,
    pub shape: Shape,
    pub filter: Vec<Condition>,
    pub c_within: Option<Within>,
    pub l_within: Option<Within>,
}

/// A length, and how long before now the range ends.
pub type Within = (&'static str, Option<&'static str>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Bare,
    /// `aggregate * 2 + count(*)`, under one FILTER.
    Doubled,
    /// `aggregate - count(*) FILTER (WHERE within(c.ts, '1d'))`: two reaches in one column.
    LessRecent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregate {
    Count,
    CountOf(Side, Of),
    CountDistinct(Side, Of),
    ApproxDistinct(Side, Of),
    ArrayOf(Side, Of),
    Sum(Of),
    Avg(Of),
    Min(Of),
    Max(Of),
    SumDistinct(Side, Of),
    BoolOr,
    BoolAnd,
}

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::C), Just(Side::L)]
}

fn source() -> impl Strategy<Value = Source> {
    let through = prop_oneof![3 => Just(Through::Nothing), 1 => Just(Through::Staging), 1 => Just(Through::Subquery)];
    (0..2usize, through).prop_map(|(stream, through)| Source { stream, through })
}

const JOINS: [Join; 8] = [
    Join { keys: &[(Of::U, Of::U)], spelled: Spelled::On },
    Join { keys: &[(Of::U, Of::U)], spelled: Spelled::Using },
    Join { keys: &[(Of::U, Of::U)], spelled: Spelled::Where },
    Join { keys: &[(Of::U, Of::U), (Of::W, Of::W)], spelled: Spelled::On },
    Join { keys: &[(Of::U, Of::U), (Of::W, Of::W)], spelled: Spelled::Using },
    Join { keys: &[(Of::UpperU, Of::UpperU)], spelled: Spelled::On },
    Join { keys: &[(Of::W, Of::X)], spelled: Spelled::On },
    Join { keys: &[(Of::U, Of::K), (Of::W, Of::W)], spelled: Spelled::Where },
];

const GROUPS: [&[Of]; 6] = [&[Of::K], &[Of::K, Of::J], &[Of::U], &[Of::UpperK], &[Of::J], &[Of::U, Of::K]];

fn condition() -> impl Strategy<Value = Condition> {
    let one_sided = prop::sample::select(vec![OneSided::Positive, OneSided::HasKey, OneSided::CheapOrOpen, OneSided::NotB]);
    let ends = vec![(Of::K, Of::K), (Of::J, Of::J), (Of::K, Of::U), (Of::UpperK, Of::K), (Of::U, Of::K)];
    prop_oneof![
        1 => (side(), one_sided).prop_map(|(side, one)| Condition::One(side, one)),
        1 => prop::sample::select(ends).prop_map(|(c, l)| Condition::Apart(c, l)),
    ]
}

fn within() -> impl Strategy<Value = Option<Within>> {
    let ranges = vec![("10s", None), ("1h", None), ("1d", None), ("30d", None), ("all", None), ("31d", Some("1d")), ("all", Some("1h"))];
    prop::option::weighted(0.25, prop::sample::select(ranges))
}

fn aggregate() -> impl Strategy<Value = Aggregate> {
    let end = || prop::sample::select(vec![Of::K, Of::J, Of::U, Of::X, Of::UpperK]);
    prop_oneof![
        3 => (side(), end()).prop_map(|(side, of)| Aggregate::CountDistinct(side, of)),
        1 => (side(), end()).prop_map(|(side, of)| Aggregate::ApproxDistinct(side, of)),
        1 => (side(), end()).prop_map(|(side, of)| Aggregate::ArrayOf(side, of)),
        2 => Just(Aggregate::Count),
        1 => (side(), end()).prop_map(|(side, of)| Aggregate::CountOf(side, of)),
        1 => side().prop_map(|side| Aggregate::SumDistinct(side, Of::X)),
        1 => prop::sample::select(vec![Aggregate::BoolOr, Aggregate::BoolAnd]),
        2 => prop::sample::select(vec![Of::X, Of::D, Of::F]).prop_map(Aggregate::Sum),
        1 => prop::sample::select(vec![Of::X, Of::D, Of::F]).prop_map(Aggregate::Avg),
        1 => prop::sample::select(vec![Of::K, Of::X, Of::D, Of::J]).prop_map(Aggregate::Min),
        1 => prop::sample::select(vec![Of::K, Of::X, Of::D, Of::U]).prop_map(Aggregate::Max),
    ]
}

fn column() -> impl Strategy<Value = Column> {
    let shape = prop_oneof![5 => Just(Shape::Bare), 1 => Just(Shape::Doubled), 1 => Just(Shape::LessRecent)];
    let filter = prop_oneof![
        3 => Just(Vec::new()).boxed(),
        2 => prop::collection::vec(condition(), 1..3).boxed(),
    ];
    (aggregate(), shape, filter, within(), within()).prop_map(|(aggregate, shape, filter, c_within, l_within)| {
        let shape = if aggregate.is_number() { shape } else { Shape::Bare };
        Column { aggregate, shape, filter, c_within, l_within }
    })
}

/// Half of the views count only links, so that both kinds of edges occur.
fn columns() -> impl Strategy<Value = Vec<Column>> {
    let links = |mut columns: Vec<Column>| {
        for (index, column) in columns.iter_mut().enumerate() {
            let end = [Of::K, Of::J, Of::U][index % 3];
            let (side, over_pairs) = match column.aggregate {
                Aggregate::CountDistinct(..) | Aggregate::ApproxDistinct(..) | Aggregate::ArrayOf(..) | Aggregate::SumDistinct(..) => {
                    (Side::L, false)
                }
                Aggregate::Count | Aggregate::Min(_) => (Side::C, true),
                _ => (Side::L, true),
            };
            column.shape = Shape::Bare;
            if over_pairs {
                column.aggregate = Aggregate::CountDistinct(side, end);
            }
            for within in [&mut column.c_within, &mut column.l_within].into_iter().flatten() {
                within.1 = None;
            }
        }
        columns
    };
    prop_oneof![prop::collection::vec(column(), 1..5), prop::collection::vec(column(), 1..5).prop_map(links),]
}

pub fn view() -> impl Strategy<Value = View> {
    let windows = prop::sample::subsequence(vec!["10s", "1h", "1d", "7d", "30d", "90d"], 0..4);
    let from = (source(), source(), any::<bool>(), prop::sample::select(JOINS.to_vec()));
    let wheres = prop_oneof![2 => Just(Vec::new()).boxed(), 2 => prop::collection::vec(condition(), 1..3).boxed()];
    let group = prop::sample::select(GROUPS.to_vec());
    (windows, from, group, wheres, columns()).prop_map(|(windows, (c, l, swapped, join), group, wheres, columns)| View {
        windows,
        c,
        l,
        swapped,
        join,
        group,
        wheres,
        columns,
    })
}
