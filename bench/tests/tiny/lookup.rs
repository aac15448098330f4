use basestream_bench::lookup::{self, Case};
use basestream_bench::report::Figure;

use super::{assert_all_reported, programs};

#[tokio::test(flavor = "multi_thread")]
async fn lookups_over_windows_are_what_the_events_say_also_on_real_services() {
    let case = |views, windows, keys| Case { views, windows, keys };
    let options = lookup::Options {
        cases: vec![case(1, 4, 300), case(1, 4, 600), case(3, 1, 300)],
        clients: 2,
        batch: 5,
        seconds: 0.1,
        repeats: 2,
        rate: 500,
        together: 50,
        checked: 10,
        window_keys: 20,
        window_events: 2_000,
        many_views: 8,
        many_views_keys: 100,
        ..lookup::Options::default()
    };
    let folder = tempfile::tempdir().unwrap();
    // A row that is not what the events say is an error, also one that a peer has.
    let report = lookup::run(&options, &programs(), folder.path(), "bench lookup").await.unwrap();
    let [lookups, aims, keys, together, windows, sizes, many_views] = &report.tables[..] else { panic!("{report}") };
    let peers = lookups.rows.iter().filter(|row| ["Redis", "PostgreSQL"].iter().any(|peer| row[1].to_string().starts_with(peer))).count();
    assert!(lookups.rows.len() == 21 + peers && [0, 4, 8].contains(&peers), "{report}");
    for row in &lookups.rows {
        assert!(matches!((&row[5], &row[6]), (Figure::PerSecond(_), Figure::Count(asked)) if *asked > 0), "{row:?}");
    }
    let busy = lookups.rows.iter().filter(|row| matches!((&row[13], &row[14]), (Figure::PerSecond(_), Figure::Count(_))));
    assert_eq!(busy.count(), 9, "{report}");
    let held = |row: &Vec<Figure>, column: usize| ["met", "missed"].iter().any(|verdict| row[column].to_string().ends_with(verdict));
    assert!(aims.rows.len() == 6 && aims.rows.iter().all(|row| held(row, 2) && held(row, 3)), "{report}");
    assert!(windows.rows.len() == 6 && windows.rows.iter().skip(1).all(|row| held(row, 7)), "{report}");
    assert!(keys.rows.len() == 2 && held(&keys.rows[1], 7), "{report}");
    assert_eq!(sizes.rows.len(), 3);
    // Of the one case that has several views.
    let [of_views] = &together.rows[..] else { panic!("{report}") };
    assert!(of_views[0].to_string() == "3:1:300" && matches!(of_views[2], Figure::Count(calls) if calls > 0), "{report}");
    assert!(held(of_views, 8) && held(of_views, 9), "{report}");
    let views: Vec<&Figure> = many_views.rows.iter().map(|row| &row[0]).collect();
    assert_eq!(views, [&Figure::Count(1), &Figure::Count(8)], "{report}");
    for row in &many_views.rows {
        assert!(matches!(&row[1..4], [Figure::Seconds(_), Figure::Seconds(_), Figure::Bytes(own)] if own.min > 1e6), "{row:?}");
        assert!(matches!(&row[6..9], [Figure::Ratio(_), Figure::Ratio(_), Figure::Seconds(_)]), "{row:?}");
    }
    assert_all_reported(&report);
}
