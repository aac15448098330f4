//! Cases that once violated the law, each with a name. A new case is shrunk and then added here.

use crate::states::{Row, holds};

/// Events of one key in all checkpoints, with ties in their times.
fn rows() -> Vec<Row> {
    let base = 1_772_366_400_000_000;
    let row = |i: usize| Row {
        ts: base - (i as i64 / 3) * 1_800_000_000,
        k: Some(1),
        j: Some(i as i32 % 2),
        x: Some(i as i64 * 7 % 11 - 3),
        d: Some(i as i64 * 100),
        f: Some(i as f64 / 4.0 - 2.0),
        u: Some(i as u8 % 4),
        b: Some(i.is_multiple_of(3)),
        checkpoint: i % 6,
    };
    (0..24).map(row).collect()
}

fn check(sql: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for t_after in [0, 3_600_000_000, 86_400_000_000] {
        runtime.block_on(holds(sql, &rows(), t_after, 0)).unwrap();
    }
}

/// DataFusion names the fields of some states by their input's columns alone: two of them got the same name.
#[test]
fn states_that_are_named_by_the_same_columns_are_kept_apart() {
    check(
        "CREATE VIEW v WITH (windows = '1h, 7d') AS SELECT k AS key0, first_value(x ORDER BY ts) AS c0, last_value(u ORDER BY ts) AS c1, \
         array_agg(u ORDER BY ts) AS c2, corr(x, f) AS c3, regr_slope(f, x) AS c4, string_agg(u, ',' ORDER BY ts) AS c5 FROM s GROUP BY k",
    );
}

/// Two ranges of one state: the left edge of one is the right edge of the other, at the same instant as an event.
#[test]
fn an_event_on_the_edge_between_two_ranges_is_in_one_of_them() {
    check(
        "CREATE VIEW v AS SELECT k AS key0, count(*) FILTER (WHERE within(ts, '1h')) AS c0, \
         count(*) FILTER (WHERE within(ts, '1d', '1h')) AS c1, count(*) FILTER (WHERE within(ts, 'all', '1d')) AS c2 FROM s GROUP BY k",
    );
}
