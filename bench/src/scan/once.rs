//! Runs one query on a separate node, in its own process.

use std::path::{Path, PathBuf};
use std::time::Instant;

use definitions::settings::{Settings, Variables};
use engine::functions::Functions;
use futures::TryStreamExt;
use jobs::Installation;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use types::{Error, Result};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScanTask {
    /// The installation's settings.
    pub config: PathBuf,
    /// `None`: the node is opened without a query.
    pub sql: Option<String>,
    pub repeats: usize,
}

/// What the process prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reported {
    pub seconds: Vec<f64>,
    pub rows: u64,
    /// The last row, as JSON.
    pub last: Value,
}

/// Runs the query in a file as often as the file says, and returns the text to print.
pub async fn answer(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path)?;
    let task: ScanTask = serde_json::from_str(&text).map_err(|error| Error::input(format!("this is no task: {error}")))?;
    let settings = Settings::load(&task.config, &Variables::from_process())?;
    let installation = Installation::open(&settings, Functions::standard()).await?;
    let node = installation.node(None).await?;
    let mut reported = Reported { seconds: Vec::new(), rows: 0, last: Value::Null };
    for sql in task.sql.iter().flat_map(|sql| std::iter::repeat_n(sql, task.repeats.max(1))) {
        let began = Instant::now();
        let mut response = node.query(sql, Vec::new()).await?;
        let (mut rows, mut last) = (0, None);
        while let Some(batch) = response.batches.try_next().await? {
            rows += batch.num_rows() as u64;
            last = (batch.num_rows() > 0).then_some(batch).or(last);
        }
        reported.seconds.push(began.elapsed().as_secs_f64());
        reported.rows = rows;
        if let Some(batch) = last {
            let row = serving::json::rows(&batch.slice(batch.num_rows() - 1, 1))?;
            reported.last = serde_json::from_str(row[0].get()).map_err(|error| Error::internal(format!("a row is no JSON: {error}")))?;
        }
    }
    installation.close().await;
    Ok(json!(reported).to_string())
}
