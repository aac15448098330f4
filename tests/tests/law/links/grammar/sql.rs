//! Writes the grammar's views as SQL.

use super::*;

impl View {
    /// The staging views and the view, each a CREATE VIEW; the view is the last.
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
            Of::O => "o",
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
        self.c_within.is_some() || self.l_within.is_some() || self.shape == Shape::LessRecent
    }

    pub fn is_bare_count(&self) -> bool {
        let counts = matches!(
            self.aggregate,
            Aggregate::Count | Aggregate::CountOf(..) | Aggregate::CountDistinct(..) | Aggregate::ApproxDistinct(..)
        );
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
            Shape::LessRecent => format!("{aggregate} - count(*) FILTER (WHERE within(c.ts, '1d'))"),
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
            Aggregate::SumDistinct(side, of) => format!("sum(DISTINCT {})", of.sql(side.alias())),
            Aggregate::BoolOr => "bool_or(l.o)".into(),
            Aggregate::BoolAnd => "bool_and(l.o)".into(),
        }
    }

    /// Whether arithmetic applies to it.
    pub(super) fn is_number(self) -> bool {
        matches!(self, Aggregate::Count | Aggregate::CountOf(..) | Aggregate::CountDistinct(..) | Aggregate::Sum(Of::X))
    }
}
