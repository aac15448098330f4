//! The served side of `verify`: a serving node of this process.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::common::utils::quote_identifier;
use serving::{Node, StateSource, scan, scan_parts};
use types::{Error, Result};

use crate::verify::{Answer, Served};

/// Answers from a node's current read view.
#[derive(Clone)]
pub struct NodeServed(pub Node);

#[async_trait]
impl Served for NodeServed {
    async fn answer(&self, view: &str, _schema: &SchemaRef) -> Result<Answer> {
        let read_view = self.0.read_view()?;
        let loaded = read_view.view(view)?;
        if !loaded.keeps(read_view.t_of(&loaded.live)) {
            return self.asked(view).await;
        }
        let view = view.to_owned();
        let merge = move || {
            let loaded = read_view.view(&view)?;
            let t = read_view.t_of(&loaded.live);
            let source = StateSource::Layers { read_view: &read_view, view: loaded };
            let columns: Vec<usize> = (0..loaded.live.plan.columns.len()).collect();
            let rows = (0..scan_parts(&source)).map(|part| scan(&loaded.live, &source, part, t, &columns)).collect::<Result<_>>()?;
            Ok(Answer { vector: read_view.vector.clone(), t, as_of: false, rows, without_nan: false })
        };
        tokio::task::spawn_blocking(merge).await?
    }
}

impl NodeServed {
    /// Users get this answer from the archive: the snapshot was built for a later time and lacks what this time needs.
    async fn asked(&self, view: &str) -> Result<Answer> {
        let answer = self.0.query(&format!("SELECT * FROM {}", quote_identifier(view)), Vec::new()).await?;
        let (vector, t) = (answer.meta.cut.clone(), answer.meta.as_of);
        Ok(Answer { vector, t, as_of: false, rows: answer.collect().await?, without_nan: false })
    }
}

/// Answers with what the last batch run of a linked view joined, as of its cut and time.
#[derive(Clone)]
pub struct JoinedServed(pub Node);

#[async_trait]
impl Served for JoinedServed {
    async fn answer(&self, view: &str, _schema: &SchemaRef) -> Result<Answer> {
        let read_view = self.0.read_view()?;
        let loaded = read_view.view(view)?;
        if loaded.live.plan.links().is_none() {
            let message = format!("the view \"{view}\" is not a join: its \"{view}__batch\" holds states, not answers");
            return Err(
                Error::input(message).with("help", "run without --batch: its answers are verified, which are computed from these states")
            );
        }
        let rows =
            self.0.query(&format!("SELECT * FROM {}", quote_identifier(&format!("{view}__batch"))), Vec::new()).await?.collect().await?;
        let joined = loaded.snapshot.as_ref().and_then(|snapshot| Some((&snapshot.manifest, snapshot.manifest.joined.as_ref()?)));
        // The query took its own read view: a node that follows the catalog may have advanced since.
        let same = self.0.loaded().is_some_and(|now| Arc::ptr_eq(&now, &read_view.loaded));
        match joined {
            Some((manifest, joined)) if same => {
                Ok(Answer { vector: manifest.cut.clone(), t: joined.t, as_of: false, rows, without_nan: false })
            }
            _ => Err(Error::conflict("a batch run ended while its join was verified: verify it again").with("view", view)),
        }
    }
}
