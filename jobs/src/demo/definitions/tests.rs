use engine::functions::Functions;
use engine::plan::{Planned, Planner};

use super::*;

#[tokio::test]
async fn every_view_plans_without_a_complaint() {
    let definitions = definitions().unwrap();
    assert_eq!((definitions.streams.len(), definitions.views.len(), definitions.sinks.len()), (3, 5, 1));
    let planner = Planner::new(&definitions, Functions::standard());
    for view in &definitions.views {
        match planner.plan(view).await {
            Ok(Planned::Stateful(plan)) => assert!(plan.columns.len() > 4, "{}", view.name),
            Ok(_) => panic!("{} keeps nothing", view.name),
            Err(found) => panic!("{}: {found}", view.name),
        }
    }
}

#[test]
fn the_files_are_all_that_the_example_has() {
    let example = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples/payments");
    let (found, diagnostics) = definitions::parse::load_project(&example).unwrap();
    assert!(diagnostics.is_empty(), "{diagnostics}");
    assert_eq!(found, definitions().unwrap());
}
