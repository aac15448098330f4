use std::path::PathBuf;

use definitions::parse::parse_definitions;
use engine::functions::Functions;

use crate::check::{Checked, check_definitions};

/// A stream of this name and its options, in a file of its own.
fn stream(name: &str, options: &str) -> (Option<PathBuf>, String) {
    let text = format!(
        "CREATE STREAM {name} (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, user_id TEXT, device TEXT)\n  \
         WITH (event_time = 'ts'{options});"
    );
    (Some(format!("streams/{name}.sql").into()), text)
}

fn view(text: &str) -> (Option<PathBuf>, String) {
    (Some("views/v.sql".into()), text.to_owned())
}

async fn check(files: &[(Option<PathBuf>, String)]) -> Checked {
    let (definitions, mistakes) = parse_definitions(files);
    assert!(mistakes.is_empty(), "{mistakes}");
    check_definitions(definitions, &Functions::standard(), 0).await
}

/// What is refused of one view over a stream that is kept for `retention`.
async fn refused(retention: &str, options: &str, column: &str) -> String {
    let select = format!("CREATE VIEW v {options} AS\nSELECT device, {column} FROM pay GROUP BY device");
    check(&[stream("pay", &format!(", retention = '{retention}'")), view(&select)]).await.diagnostics.to_string()
}

#[tokio::test]
async fn a_stream_that_is_kept_for_less_long_than_a_window_over_it_is_refused_with_both_lengths() {
    assert_eq!(
        refused("3d", "WITH (windows = '1h, 7d')", "count(*) AS n").await,
        "views/v.sql:2:1: error: view \"v\": the stream \"pay\" keeps events for 3d, and the view counts them for 7d 1h (its longest \
         window and the hop that the window begins at): events that count would be deleted\n  \
         help: retention = '7d 1h' or longer for \"pay\" (streams/pay.sql:1), or shorter windows"
    );
}

#[tokio::test]
async fn a_window_needs_its_hop_too_and_no_more() {
    let count = "count(*) AS n";
    assert!(refused("7d", "WITH (windows = '7d')", count).await.contains("keeps events for 7d"), "the left edge lies up to an hour before");
    assert_eq!(refused("169h", "WITH (windows = '7d')", count).await, "");
    assert_eq!(refused("7d 1h", "WITH (windows = '7d')", count).await, "", "as the refusal writes it");
    assert!(refused("90d", "WITH (windows = '90d')", count).await.contains("for 91d"));
    assert_eq!(refused("91d", "WITH (windows = '90d')", count).await, "");
    assert!(refused("169h", "WITH (windows = '7d', precision = '1d')", count).await.contains("for 8d"), "the hop that is asked for");
}

#[tokio::test]
async fn a_window_of_one_column_and_what_ends_before_now_count_as_well() {
    let before = "count(*) FILTER (WHERE within(ts, '31d', '1d')) AS n";
    assert!(refused("31d", "", before).await.contains("counts them for 31d 5m ("), "until does not shorten how far it reaches back");
    let two = "count(*) AS n, count(*) FILTER (WHERE within(ts, '30d')) AS month";
    assert!(refused("7d", "WITH (windows = '1h')", two).await.contains("for 30d 1h ("));
}

#[tokio::test]
async fn all_time_over_a_stream_that_forgets_is_refused() {
    let reported = "and the view counts them for ever (all time): events that count would be deleted\n  \
        help: no retention for \"pay\" (streams/pay.sql:1), or a window for every aggregate";
    for (options, column) in [
        ("", "count(*) AS n"),
        ("WITH (windows = '1h')", "max(ts) FILTER (WHERE within(ts, 'all')) AS last_seen"),
        ("", "count(*) FILTER (WHERE within(ts, 'all', '1d')) AS older"),
    ] {
        let found = refused("400d", options, column).await;
        assert!(found.ends_with(reported), "{column}: {found}");
    }
}

#[tokio::test]
async fn each_side_of_a_link_needs_its_own_window() {
    let linked = view(
        "CREATE VIEW v AS SELECT a.device, count(DISTINCT b.device) FILTER (WHERE within(a.ts, '30d') AND within(b.ts, '1h')) AS n\n\
         FROM near a JOIN far b ON a.user_id = b.user_id GROUP BY a.device",
    );
    let kept = |near: &str, far: &str| {
        [stream("near", &format!(", retention = '{near}'")), stream("far", &format!(", retention = '{far}'")), linked.clone()]
    };
    assert_eq!(check(&kept("31d", "2h")).await.diagnostics.to_string(), "");
    let found = check(&kept("7d", "2h")).await.diagnostics.to_string();
    assert!(found.contains("the stream \"near\" keeps events for 7d") && !found.contains("\"far\""), "{found}");
    let found = check(&kept("31d", "1h")).await.diagnostics.to_string();
    assert!(found.contains("the stream \"far\" keeps events for 1h, and the view counts them for 1h 1m ("), "{found}");
}

#[tokio::test]
async fn every_stream_of_a_union_is_looked_at_also_below_a_staging_view() {
    let files = [
        stream("kept", ""),
        stream("pay", ", retention = '1d'"),
        stream("refund", ", retention = '2d'"),
        view(
            "CREATE VIEW both AS SELECT device, ts FROM pay UNION ALL SELECT device, ts FROM refund UNION ALL SELECT device, ts FROM kept;\n\
             CREATE VIEW v WITH (windows = '7d') AS SELECT device, count(*) AS n FROM both GROUP BY device",
        ),
    ];
    let found = check(&files).await.diagnostics;
    let streams: Vec<bool> = ["\"pay\" keeps", "\"refund\" keeps"].map(|reported| found.to_string().contains(reported)).into();
    assert_eq!((found.len(), streams), (2, vec![true, true]), "{found}");
}
