//! The definitions of the stream and of its view, with any number of aggregates.

pub const STREAM: &str = "payments";
pub const VIEW: &str = "account_velocity";

/// What the stream declares of a payment, and whether the archive also holds each record's text (the default).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// Every member, or only the id and the three that five aggregates read.
    pub all_columns: bool,
    pub raw: bool,
}

impl Kept {
    pub const EVERYTHING: Kept = Kept { all_columns: true, raw: true };
}

/// The definition of the stream over a topic.
pub fn stream_sql(topic: &str, kept: Kept) -> String {
    let others = match kept.all_columns {
        true => {
            ",\n  currency TEXT NOT NULL, status TEXT NOT NULL, channel TEXT NOT NULL, country TEXT, card_country TEXT, merchant_id TEXT,\n  \
             device_id TEXT"
        }
        false => "",
    };
    format!(
        "CREATE STREAM {STREAM} (event_id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, account_id TEXT NOT NULL, amount DECIMAL(18,2) NOT NULL\
         {others})\n\
         WITH (topic = '{topic}', format = 'json', event_time = 'ts', id = 'event_id', dedup_within = '10m', key = 'account_id',\n\
         \x20 keep_raw = {});\n",
        kept.raw
    )
}

const FUNCTIONS: [(&str, &str); 5] =
    [("events", "count(*)"), ("amount", "sum(amount)"), ("mean", "avg(amount)"), ("least", "min(amount)"), ("greatest", "max(amount)")];
const FILTERS: [(&str, &str); 4] =
    [("", ""), ("declined_", "status = 'declined'"), ("online_", "channel = 'online'"), ("abroad_", "country <> card_country")];
pub const MOST_AGGREGATES: usize = FUNCTIONS.len() * FILTERS.len();

/// The definition of the view, with this many aggregates per account and minute: the count first and the sum second.
pub fn view_sql(aggregates: usize) -> String {
    let all = FILTERS.iter().flat_map(|(prefix, filter)| {
        FUNCTIONS.iter().map(move |(name, function)| match filter.is_empty() {
            true => format!("{function} AS {prefix}{name}"),
            false => format!("{function} FILTER (WHERE {filter}) AS {prefix}{name}"),
        })
    });
    let columns: Vec<String> = all.take(aggregates.max(1)).collect();
    format!(
        "CREATE VIEW {VIEW} WITH (windows = '1h') AS\nSELECT account_id, {}\nFROM {STREAM} GROUP BY account_id;\n",
        columns.join(",\n       ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_has_as_many_aggregates_as_asked() {
        for aggregates in [1, 5, MOST_AGGREGATES] {
            assert_eq!(view_sql(aggregates).matches(" AS ").count(), aggregates, "{}", view_sql(aggregates));
        }
    }
}
