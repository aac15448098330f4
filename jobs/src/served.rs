//! A serving node of this process as the side that `verify` asks.

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use schemas::Result;
use serving::{Node, Source, scan, scan_parts};

use crate::verify::{Answer, Served};

/// Answers from a node's present stand.
#[derive(Clone)]
pub struct NodeServed(pub Node);

#[async_trait]
impl Served for NodeServed {
    async fn answer(&self, view: &str, _schema: &SchemaRef) -> Result<Answer> {
        let stand = self.0.stand()?;
        let view = view.to_owned();
        let merge = move || {
            let loaded = stand.view(&view)?;
            let t = stand.t_of(&loaded.live);
            let source = Source::Layers { stand: &stand, view: loaded };
            let columns: Vec<usize> = (0..loaded.live.plan.columns.len()).collect();
            let rows = (0..scan_parts(&source)).map(|part| scan(&loaded.live, &source, part, t, &columns)).collect::<Result<_>>()?;
            Ok(Answer { vector: stand.vector.clone(), t, as_of: false, rows, without_nan: false })
        };
        tokio::task::spawn_blocking(merge).await?
    }
}
