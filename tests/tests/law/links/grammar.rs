//! A grammar of the SELECTs over a JOIN that a view can be: values, so that a loop can answer them as well as SQL.

use proptest::prelude::*;

/// A view over two streams, or over one twice. `c` is the side of the group keys, `l` the other.
#[derive(Debug, Clone)]
pub struct View {
    pub windows: Vec<&'static str>,
    pub c: Source,
    pub l: Source,
    /// `l` stands first in FROM.
    pub swapped: bool,
    pub join: Join,
    pub group: &'static [Of],
    pub wheres: Vec<Condition>,
    pub columns: Vec<Column>,
}

/// What a side reads: one of the two streams, through nothing, a staging view or a subquery.
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
    /// Where the keys are columns of one name.
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

/// A length, and how long before now it ends.
pub type Within = (&'static str, Option<&'static str>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Bare,
    /// `aggregate * 2 + count(*)`, under one FILTER.
    Doubled,
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
}

impl View {
    /// The view and its staging views, each a CREATE VIEW; the view is the last.
    pub fn sql(&self, name: &str) -> String {
        let mut sql = format!("CREATE VIEW {name} ");
        if !self.windows.is_empty() {
            sql.push_str(&format!("WITH (windows = '{}') ", self.windows.join(", ")));
        }
        let keys = self.group.iter().enumerate().map(|(i, key)| format!("{} AS key{i}", key.sql("c")));
        let columns = self.columns.iter().enumerate().map(|(i, column)| format!("{} AS c{i}", column.sql()));
        let items: Vec<String> = keys.chain(columns).collect();
        let mut wheres: Vec<String> = self.wheres.iter().map(Condition::sql).collect();
        let (c, l) = (self.c.sql("c"), self.l.sql("l"));
        let (first, second) = if self.swapped { (l, c) } else { (c, l) };
        let equal: Vec<String> = self.join.keys.iter().map(|(c, l)| format!("{} = {}", c.sql("c"), l.sql("l"))).collect();
        let from = match self.join.spelled {
            Spelled::On => format!("{first} JOIN {second} ON {}", equal.join(" AND ")),
            Spelled::Using => {
                let names: Vec<String> = self.join.keys.iter().map(|(c, _)| c.name().to_owned()).collect();
                format!("{first} JOIN {second} USING ({})", names.join(", "))
            }
            Spelled::Where => {
                wheres.extend(equal);
                format!("{first}, {second}")
            }
        };
        let filter = if wheres.is_empty() { String::new() } else { format!(" WHERE {}", wheres.join(" AND ")) };
        let group: Vec<String> = self.group.iter().map(|key| key.sql("c")).collect();
        format!("{sql}AS SELECT {} FROM {from}{filter} GROUP BY {}", items.join(", "), group.join(", "))
    }
}

/// The staging view of each stream.
pub const STAGING: [(&str, &str); 2] = [
    ("clean_a", "CREATE VIEW clean_a AS SELECT * FROM a WHERE x IS DISTINCT FROM 3"),
    ("clean_b", "CREATE VIEW clean_b AS SELECT * FROM b WHERE x IS DISTINCT FROM 3"),
];

impl Source {
    fn sql(self, alias: &str) -> String {
        let stream = ["a", "b"][self.stream];
        match self.through {
            Through::Nothing => format!("{stream} {alias}"),
            Through::Staging => format!("clean_{stream} AS {alias}"),
            Through::Subquery => format!("(SELECT * FROM {stream} WHERE j IS NOT NULL) AS {alias}"),
        }
    }
}

impl Of {
    pub fn name(self) -> &'static str {
        match self {
            Of::K | Of::UpperK => "k",
            Of::J => "j",
            Of::U | Of::UpperU => "u",
            Of::W => "w",
            Of::X => "x",
            Of::D => "d",
            Of::F => "f",
        }
    }

    fn sql(self, alias: &str) -> String {
        match self {
            Of::UpperK | Of::UpperU => format!("upper({alias}.{})", self.name()),
            _ => format!("{alias}.{}", self.name()),
        }
    }
}

impl Side {
    fn alias(self) -> &'static str {
        if self == Side::C { "c" } else { "l" }
    }
}

impl Condition {
    fn sql(&self) -> String {
        match self {
            Condition::One(side, one) => {
                let alias = side.alias();
                match one {
                    OneSided::Positive => format!("{alias}.x > 0"),
                    OneSided::HasKey => format!("{alias}.k IS NOT NULL"),
                    OneSided::CheapOrOpen => format!("({alias}.d < 500 OR {alias}.o)"),
                    OneSided::NotB => format!("{alias}.u <> 'b'"),
                }
            }
            Condition::Apart(c, l) => format!("{} <> {}", l.sql("l"), c.sql("c")),
        }
    }
}

impl Column {
    pub fn names_its_window(&self) -> bool {
        self.c_within.is_some() || self.l_within.is_some()
    }

    pub fn is_bare_count(&self) -> bool {
        let counts = matches!(self.aggregate, Aggregate::Count | Aggregate::CountOf(..) | Aggregate::CountDistinct(..));
        counts && self.shape == Shape::Bare
    }

    fn sql(&self) -> String {
        let mut conditions: Vec<String> = self.filter.iter().map(Condition::sql).collect();
        for (side, within) in [("c", &self.c_within), ("l", &self.l_within)] {
            if let Some((length, until)) = within {
                let until = until.map(|until| format!(", '{until}'")).unwrap_or_default();
                conditions.push(format!("within({side}.ts, '{length}'{until})"));
            }
        }
        let filter = if conditions.is_empty() { String::new() } else { format!(" FILTER (WHERE {})", conditions.join(" AND ")) };
        let aggregate = format!("{}{filter}", self.aggregate.sql());
        match self.shape {
            Shape::Bare => aggregate,
            Shape::Doubled => format!("{aggregate} * 2 + count(*){filter}"),
        }
    }
}

impl Aggregate {
    fn sql(self) -> String {
        match self {
            Aggregate::Count => "count(*)".into(),
            Aggregate::CountOf(side, of) => format!("count({})", of.sql(side.alias())),
            Aggregate::CountDistinct(side, of) => format!("count(DISTINCT {})", of.sql(side.alias())),
            Aggregate::ApproxDistinct(side, of) => format!("approx_distinct({})", of.sql(side.alias())),
            Aggregate::ArrayOf(side, of) => {
                let of = of.sql(side.alias());
                format!("array_agg(DISTINCT {of} ORDER BY {of})")
            }
            Aggregate::Sum(of) => format!("sum({})", of.sql("l")),
            Aggregate::Avg(of) => format!("avg({})", of.sql("l")),
            Aggregate::Min(of) => format!("min({})", of.sql("l")),
            Aggregate::Max(of) => format!("max({})", of.sql("l")),
        }
    }

    /// What arithmetic can be done with.
    fn is_number(self) -> bool {
        matches!(self, Aggregate::Count | Aggregate::CountOf(..) | Aggregate::CountDistinct(..) | Aggregate::Sum(Of::X))
    }
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
        1 => end().prop_map(|of| Aggregate::CountOf(Side::L, of)),
        2 => prop::sample::select(vec![Of::X, Of::D, Of::F]).prop_map(Aggregate::Sum),
        1 => prop::sample::select(vec![Of::X, Of::D, Of::F]).prop_map(Aggregate::Avg),
        1 => prop::sample::select(vec![Of::K, Of::X, Of::D, Of::J]).prop_map(Aggregate::Min),
        1 => prop::sample::select(vec![Of::K, Of::X, Of::D, Of::U]).prop_map(Aggregate::Max),
    ]
}

fn column() -> impl Strategy<Value = Column> {
    let shape = prop_oneof![5 => Just(Shape::Bare), 1 => Just(Shape::Doubled)];
    let filter = prop_oneof![
        3 => Just(Vec::new()).boxed(),
        2 => prop::collection::vec(condition(), 1..3).boxed(),
    ];
    (aggregate(), shape, filter, within(), within()).prop_map(|(aggregate, shape, filter, c_within, l_within)| {
        let shape = if aggregate.is_number() { shape } else { Shape::Bare };
        Column { aggregate, shape, filter, c_within, l_within }
    })
}

/// Half of the views count links alone, so that both kinds of edges are met.
fn columns() -> impl Strategy<Value = Vec<Column>> {
    let links = |mut columns: Vec<Column>| {
        for (index, column) in columns.iter_mut().enumerate() {
            let end = [Of::K, Of::J, Of::U][index % 3];
            let (side, over_pairs) = match column.aggregate {
                Aggregate::CountDistinct(..) | Aggregate::ApproxDistinct(..) | Aggregate::ArrayOf(..) => (Side::L, false),
                Aggregate::Count | Aggregate::Min(_) => (Side::C, true),
                _ => (Side::L, true),
            };
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
