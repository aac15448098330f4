//! The views and the sink that are measured.

use crate::payments::{Kept, STREAM, VIEW, stream_sql, view_sql};

pub(super) const SINK_TOPIC: &str = "scored";

/// Aggregates of the view by account.
const AGGREGATES: usize = 5;

/// A view: its name, its key, and what the sink reads of it.
const VIEWS: [(&str, &str, &str); 3] = [
    (VIEW, "account_id", "v0.events_1h, v0.amount_1h, v0.greatest_1h"),
    ("merchant_velocity", "merchant_id", "v1.payments_1h, v1.accounts_1h"),
    ("account_links", "account_id", "v2.linked_accounts_1h"),
];
pub(super) const MOST_VIEWS: usize = VIEWS.len();

const MERCHANTS: &str = "CREATE VIEW merchant_velocity WITH (windows = '1h') AS\n\
    SELECT merchant_id, count(*) AS payments, approx_distinct(account_id) AS accounts FROM payments GROUP BY merchant_id;\n";
const LINKS: &str = "CREATE VIEW account_links WITH (windows = '1h') AS\n\
    SELECT mine.account_id, count(DISTINCT theirs.account_id) FILTER (WHERE theirs.account_id <> mine.account_id) AS linked_accounts\n\
    FROM payments mine JOIN payments theirs ON mine.device_id = theirs.device_id GROUP BY mine.account_id;\n";

/// The files of a project whose sink joins the first of the views.
pub(super) fn of_views(topic: &str, views: usize) -> Vec<(&'static str, String)> {
    let of_view = [view_sql(AGGREGATES), MERCHANTS.to_owned(), LINKS.to_owned()];
    let files = ["views/account_velocity.sql", "views/merchant_velocity.sql", "views/account_links.sql"];
    let stream = ("streams/payments.sql", stream_sql(topic, Kept::EVERYTHING));
    let views_sql = files.into_iter().zip(of_view).take(views);
    [stream].into_iter().chain(views_sql).chain([("sinks/scored.sql", sink_sql(views))]).collect()
}

fn sink_sql(views: usize) -> String {
    let joined = VIEWS.iter().take(views).enumerate();
    let columns: Vec<&str> = joined.clone().map(|(_, (_, _, columns))| *columns).collect();
    let joins: Vec<String> = joined.map(|(nth, (name, key, _))| format!("LEFT JOIN {name} v{nth} ON v{nth}.{key} = p.{key}")).collect();
    format!(
        "CREATE SINK scored WITH (topic = '{SINK_TOPIC}', key = 'account_id') AS\n\
         SELECT p.event_id, p.account_id, p.amount, {},\n       \
         CASE WHEN v0.events_1h > 100 THEN 'review' WHEN p.amount > 10 * v0.mean_1h THEN 'deny' ELSE 'allow' END AS decision\n\
         FROM {STREAM} p {};\n",
        columns.join(", "),
        joins.join(" ")
    )
}
