//! Benchmarks of answers computed from states.

use basestream_bench::purchases::{VIEW, account_text};
use datafusion::common::ScalarValue;
use divan::Bencher;
use divan::counter::ItemsCount;
use serving::Keys;

use crate::site::SITE;

/// Looks up uniformly chosen keys in process.
#[divan::bench(args = [1, 16, 100])]
fn lookup(bencher: Bencher<'_, '_>, keys: u64) {
    let site = &*SITE;
    let mut nth = 0;
    let asked = || {
        nth += keys;
        Keys::Typed((nth..nth + keys).map(|nth| vec![ScalarValue::Utf8(Some(account_text(site.purchases.account(nth))))]).collect())
    };
    bencher.counter(ItemsCount::new(keys)).with_inputs(asked).bench_local_values(|keys| {
        let answer = site.runtime.block_on(site.node.lookup(VIEW, keys, None)).expect("an answer");
        assert_eq!(answer.rows.num_rows(), answer.found.len());
        answer
    });
}

/// The same lookup as a row of JSON, which is what HTTP adds.
#[divan::bench]
fn row_as_json(bencher: Bencher<'_, '_>) {
    let site = &*SITE;
    let key = Keys::Typed(vec![vec![ScalarValue::Utf8(Some(account_text(site.purchases.account(0))))]]);
    let answer = site.runtime.block_on(site.node.lookup(VIEW, key, None)).expect("an answer");
    bencher.counter(ItemsCount::new(1u64)).bench_local(|| {
        let mut out = Vec::new();
        serving::json::write_rows(&mut out, &answer.rows).expect("JSON");
        out
    });
}
