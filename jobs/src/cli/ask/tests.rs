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
