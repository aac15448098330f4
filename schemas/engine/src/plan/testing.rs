//! Plans views for tests, as new or as stored definitions.

use definitions::{Definitions, parse};

use super::{Planned, Planner};
use crate::functions::Functions;

/// Plans `CREATE VIEW v AS` this SELECT over a stream. For a refusal, returns the column and the message of each
/// mistake.
pub(super) async fn planned(stream: &str, select: &str, is_strict: bool) -> Result<Planned, String> {
    let view = parse::parse_view(&format!("CREATE VIEW v AS {select}")).unwrap();
    let project = Definitions { streams: vec![parse::parse_stream(stream).unwrap()], views: vec![view.clone()], ..Definitions::default() };
    let planner = Planner::new(&project, Functions::standard());
    let planner = if is_strict { planner.strict() } else { planner };
    let planned = planner.plan(&view).await;
    planned.map_err(|found| found.0.iter().map(|one| format!("{} {}", one.column, one.message)).collect::<Vec<_>>().join("\n"))
}
