use arrow::array::{Float32Array, Float64Array};
use definitions::parse::parse_definitions;
use definitions::settings::{Settings, Variables};
use engine::functions::Functions;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_lookup_among_two_hundred_views_loads_the_one_that_it_asks_for() {
    const VIEWS: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::parse("", &folder.path().join("basestream.toml"), &Variables::default()).unwrap();
    let installation = Installation::open(&settings, Functions::standard()).await.unwrap();
    let mut text = "CREATE STREAM orders (customer TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL) WITH (event_time = 'ts');\n".to_owned();
    for view in 0..VIEWS {
        text.push_str(&format!("CREATE VIEW of_{view} AS SELECT customer, count(*) AS n FROM orders GROUP BY customer;\n"));
    }
    let (definitions, mistakes) = parse_definitions(&[(None, text)]);
    mistakes.into_result().unwrap();
    installation.apply(&definitions, false).await.unwrap();
    let node = node_of_lookup(&installation, "of_7").await.unwrap();
    let loaded = node.read_view().unwrap().loaded.clone();
    assert_eq!(loaded.registry.views.len(), VIEWS);
    let names: Vec<String> = loaded.views.keys().chain(loaded.building.keys()).map(|view| view.name.to_string()).collect();
    assert_eq!(names, ["of_7"]);
    assert!(loaded.failed.is_empty(), "{:?}", loaded.failed);
}

#[test]
fn numbers_that_are_not_finite_are_printed_as_postgresql_writes_them() {
    let doubles: ArrayRef = Arc::new(Float64Array::from(vec![Some(f64::INFINITY), Some(f64::NEG_INFINITY), Some(f64::NAN), None]));
    let reals: ArrayRef = Arc::new(Float32Array::from(vec![Some(1.5), Some(f32::NEG_INFINITY), Some(f32::NAN), None]));
    let rows = RecordBatch::try_from_iter([("a", doubles), ("b", reals)]).unwrap();
    let texts: Vec<String> = (0..4).map(|row| values_text(&rows, row).unwrap().join(" ")).collect();
    assert_eq!(texts, ["Infinity 1.5", "-Infinity -Infinity", "NaN NaN", "NULL NULL"]);
}
