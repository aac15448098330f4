//! A plain SELECT over the archive by DataFusion, as `verify` runs it to check answers. Runs in its own process.

use std::path::{Path, PathBuf};
use std::time::Instant;

use arrow::array::RecordBatch;
use definitions::settings::{Settings, Variables};
use engine::functions::Functions;
use futures::TryStreamExt;
use jobs::Installation;
use jobs::verify::{Expected, Verifier};
use parquet::arrow::ArrowWriter;
use serde::{Deserialize, Serialize};
use serde_json::json;
use types::{Error, Result};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SelectTask {
    /// The installation's settings.
    pub config: PathBuf,
    /// The view whose streams are queried.
    pub view: String,
    pub sql: String,
    pub memory_bytes: u64,
    /// The file that receives the answer, as Parquet.
    pub answer: Option<PathBuf>,
}

/// Answers the task in a file. Returns the text to print, with the seconds that it took.
pub async fn answer(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path)?;
    let task: SelectTask = serde_json::from_str(&text).map_err(|error| Error::input(format!("this is no task: {error}")))?;
    let settings = Settings::load(&task.config, &Variables::from_process())?;
    let installation = Installation::open(&settings, Functions::standard()).await?;
    let verifier = Verifier {
        catalog: installation.catalog.clone(),
        storage: installation.storage.clone(),
        functions: installation.functions.clone(),
        memory_limit: task.memory_bytes as usize,
        temp_dir: None,
    };
    let began = Instant::now();
    let state = installation.catalog.state().await?;
    let expected = Expected::new(&verifier, &state, &task.view)?;
    let batches: Vec<RecordBatch> = expected.run(&task.sql, &state.vector()).await?.try_collect().await?;
    let seconds = began.elapsed().as_secs_f64();
    if let Some((path, schema)) = task.answer.zip(batches.first().map(RecordBatch::schema)) {
        let mut writer = ArrowWriter::try_new(std::fs::File::create(path)?, schema, None)?;
        batches.iter().try_for_each(|batch| writer.write(batch))?;
        writer.close()?;
    }
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    Ok(json!({ "seconds": seconds, "rows": rows }).to_string())
}
