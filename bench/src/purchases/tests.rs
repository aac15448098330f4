use super::*;
use crate::events::END;
use crate::view::Dialect;

#[test]
fn purchases_are_the_same_each_time_in_order_and_before_the_end() {
    for recent in [1.0, 4.0] {
        let purchases = Purchases { recent, ..Purchases::with_size(300, 20) };
        let times: Vec<Micros> = (0..300).map(|number| purchases.purchase(number).ts).collect();
        assert!(times.is_sorted() && times.iter().all(|ts| *ts < END) && times.last() == Some(&purchases.newest()));
        assert_eq!(purchases.purchase(7), purchases.purchase(7));
    }
}

#[test]
fn an_account_buys_from_the_same_merchants_again() {
    let purchases = Purchases::with_size(10_000, 20);
    let of_first: Vec<u64> =
        (0..10_000).map(|number| purchases.purchase(number)).filter(|one| one.account == 3).map(|one| one.merchant).collect();
    let merchants: std::collections::BTreeSet<u64> = of_first.iter().copied().collect();
    assert!(merchants.len() > 3 && merchants.len() as u64 <= OF_AN_ACCOUNT && of_first.len() > 100, "{merchants:?}");
}

#[test]
fn windows_begin_where_the_planner_says() {
    for window in ALL_WINDOWS {
        let length = definitions::durations::parse_duration(window.text).unwrap();
        let hop = types::tiles::Level::hop_of(length);
        assert_eq!(window.start(END - 1), hop.floor(END - 1 - length.as_micros() as Micros), "{}", window.text);
    }
}

#[test]
fn the_longest_window_needs_no_filter() {
    let purchases = Purchases::with_size(300, 20);
    let sql = question::plain_select(&purchases, Dialect::DuckDb);
    assert!(sql.contains("count(*) AS purchases_90d") && sql.contains("count(*) FILTER (WHERE ts >= make_timestamptz("), "{sql}");
}

#[test]
fn without_distinct_there_is_nothing_to_do_by_hand() {
    let purchases = Purchases::with_size(300, 20);
    let sql = question::select_by_merchant(&purchases).unwrap();
    assert!(!sql.contains("DISTINCT") && sql.contains("GROUP BY account_id, merchant_id"), "{sql}");
    assert_eq!(question::select_by_merchant(&Purchases { aggregates: SMALL_AGGREGATES, ..purchases }), None);
}
