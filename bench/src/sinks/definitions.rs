//! The views and the sink that are measured.

use crate::payments::{Kept, STREAM, VIEW, stream_sql, view_sql};

pub(super) const MOST_VIEWS: usize = 3;

/// Aggregates of the view by account.
const AGGREGATES: usize = 5;

const MERCHANTS: &str = "CREATE VIEW merchant_velocity WITH (windows = '1h') AS\n\
    SELECT merchant_id, count(*) AS payments, approx_distinct(account_id) AS accounts FROM payments GROUP BY merchant_id;\n";
const MERCHANTS_AS_FLINK: &str = "CREATE VIEW merchant_velocity WITH (windows = '1h') AS\n\
    SELECT merchant_id, count(*) AS payments, sum(amount) AS amount FROM payments GROUP BY merchant_id;\n";
const LINKS: &str = "CREATE VIEW account_links WITH (windows = '1h') AS\n\
    SELECT mine.account_id, count(DISTINCT theirs.account_id) FILTER (WHERE theirs.account_id <> mine.account_id) AS linked_accounts\n\
    FROM payments mine JOIN payments theirs ON mine.device_id = theirs.device_id GROUP BY mine.account_id;\n";

/// A view that the sink joins by its key, and what it reads of it.
pub(super) struct Joined {
    name: &'static str,
    key: &'static str,
    columns: &'static [&'static str],
    sql: String,
}

/// The first of the views: by account, by merchant, and accounts that are linked by a device.
pub(super) fn joined(views: usize) -> Vec<Joined> {
    let linked = Joined { name: "account_links", key: "account_id", columns: &["linked_accounts_1h"], sql: LINKS.to_owned() };
    [by_account(), by_merchant(&["payments_1h", "accounts_1h"], MERCHANTS), linked].into_iter().take(views).collect()
}

/// The same without what Flink SQL has no OVER window for: a link, and an estimate.
pub(super) fn joined_as_in_flink() -> Vec<Joined> {
    vec![by_account(), by_merchant(&["payments_1h", "amount_1h"], MERCHANTS_AS_FLINK)]
}

fn by_account() -> Joined {
    Joined { name: VIEW, key: "account_id", columns: &["events_1h", "amount_1h", "greatest_1h"], sql: view_sql(AGGREGATES) }
}

fn by_merchant(columns: &'static [&'static str], sql: &str) -> Joined {
    Joined { name: "merchant_velocity", key: "merchant_id", columns, sql: sql.to_owned() }
}

/// The files of a project whose sink joins these views.
pub(super) fn files(topic: &str, sink_topic: &str, joined: &[Joined]) -> Vec<(&'static str, String)> {
    let views: String = joined.iter().map(|view| view.sql.as_str()).collect();
    vec![
        ("streams/payments.sql", stream_sql(topic, Kept::EVERYTHING)),
        ("views/joined.sql", views),
        ("sinks/scored.sql", sink_sql(sink_topic, joined)),
    ]
}

fn sink_sql(topic: &str, joined: &[Joined]) -> String {
    let columns_of = |(nth, view): (usize, &Joined)| {
        let columns = view.columns.iter().map(|column| format!("v{nth}.{column} AS v{nth}_{column}"));
        columns.collect::<Vec<_>>().join(", ")
    };
    let columns: Vec<String> = joined.iter().enumerate().map(columns_of).collect();
    let join = |(nth, Joined { name, key, .. }): (usize, &Joined)| format!("LEFT JOIN {name} v{nth} ON v{nth}.{key} = p.{key}");
    let joins: Vec<String> = joined.iter().enumerate().map(join).collect();
    format!(
        "CREATE SINK scored WITH (topic = '{topic}', key = 'account_id') AS\n\
         SELECT p.event_id, p.account_id, p.amount, {},\n       \
         CASE WHEN v0.events_1h > 100 THEN 'review' WHEN p.amount > 10 * v0.mean_1h THEN 'deny' ELSE 'allow' END AS decision\n\
         FROM {STREAM} p {};\n",
        columns.join(", "),
        joins.join(" ")
    )
}
