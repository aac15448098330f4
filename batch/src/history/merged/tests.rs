//! Streams in one order: every event once, none before an earlier one, and those of one time in the order of the
//! streams.

use arrow::array::{ArrayRef, TimestampMicrosecondArray};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use proptest::prelude::*;

use super::*;

fn stream(mut times: Vec<Micros>, batch_rows: usize) -> SendableRecordBatchStream {
    times.sort_unstable();
    let batch = |times: &[Micros]| {
        let column: ArrayRef = Arc::new(TimestampMicrosecondArray::from(times.to_vec()).with_timezone("UTC"));
        RecordBatch::try_from_iter([("at", column)]).unwrap()
    };
    let schema = batch(&[]).schema();
    let batches: Vec<_> = times.chunks(batch_rows).map(|times| Ok(batch(times))).collect();
    Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::iter(batches)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn chunks_are_in_order_and_have_every_event_once(
        streams in prop::collection::vec(prop::collection::vec(0..60_i64, 0..40), 0..4),
        batch_rows in 1..9_usize,
    ) {
        let named = streams.iter().enumerate();
        let named = named.map(|(name, times)| (Arc::from(format!("s{name}")), stream(times.clone(), batch_rows)));
        let mut merged = MergedEvents::new("at", named.collect());
        let of_stream = |(name, times): (usize, &Vec<Micros>)| times.iter().map(move |time| (*time, format!("s{name}"))).collect::<Vec<_>>();
        let mut expected: Vec<(Micros, String)> = streams.iter().enumerate().flat_map(of_stream).collect();
        expected.sort_unstable();
        let mut found = Vec::new();
        futures::executor::block_on(async {
            loop {
                let chunk = merged.next().await.unwrap();
                let mut of_place = vec![String::new(); chunk.times.len()];
                for part in &chunk.parts {
                    assert_eq!(part.events.num_rows(), part.places.len());
                    for (time, place) in micros(&part.events, "at").unwrap().iter().zip(&part.places) {
                        assert_eq!(chunk.times[*place as usize], *time);
                        of_place[*place as usize] = part.stream.to_string();
                    }
                }
                let places: usize = chunk.parts.iter().map(|part| part.places.len()).sum();
                assert_eq!(places, chunk.times.len());
                found.extend(chunk.times.iter().copied().zip(of_place));
                match chunk.next {
                    Some(next) => assert_eq!(next, expected[found.len()].0),
                    None => break,
                }
                assert!(!chunk.times.is_empty());
            }
        });
        assert_eq!(found, expected);
    }
}
