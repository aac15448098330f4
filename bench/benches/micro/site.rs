//! The installation that all benchmarks use: it has a snapshot and is built on first use.

use std::path::Path;
use std::sync::LazyLock;

use basestream_bench::events::Events;
use basestream_bench::installed::Installed;
use basestream_bench::purchases::{Purchases, VIEW};
use committed::registry::{LiveView, Registry};
use datafusion::prelude::SessionContext;
use serving::Node;
use tokio::runtime::Runtime;
use types::Result;

pub struct Site {
    pub runtime: Runtime,
    pub purchases: Purchases,
    pub node: Node,
    pub view: LiveView,
    pub installed: Installed,
    _folder: tempfile::TempDir,
}

/// `cargo bench` passes this option.
pub fn is_measured() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// Returns `many` when measuring, else `few`.
pub fn scaled(few: u64, many: u64) -> u64 {
    if is_measured() { many } else { few }
}

pub static SITE: LazyLock<Site> = LazyLock::new(|| {
    let runtime = Runtime::new().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let purchases = Purchases { days: 370, recent: 4.0, ..Purchases::with_size(scaled(2_000, 1_000_000), scaled(100, 100_000)) };
    let (node, view, installed) = runtime.block_on(make(folder.path(), &purchases)).expect("an installation");
    Site { runtime, purchases, node, view: view.expect("a live view"), installed, _folder: folder }
});

async fn make(folder: &Path, purchases: &Purchases) -> Result<(Node, Option<LiveView>, Installed)> {
    let installed = Installed::create(folder, purchases).await?;
    installed.archive(purchases).await?;
    installed.installation.run_view(VIEW, &|_| {}).await?;
    let node = installed.installation.node(None).await?;
    let state = installed.installation.catalog.state().await?;
    let registry = Registry::load(&state, &installed.installation.functions).await?;
    Ok((node, registry.view(VIEW, 1).cloned(), installed))
}

impl Site {
    /// Accepted events from number `first` on, as the archive has them.
    pub fn events(&self, first: u64, count: u64) -> arrow::array::RecordBatch {
        let stream = &self.view.plan.streams[0];
        let numbers: Vec<u64> = (first..first + count).map(|number| number % self.purchases.events).collect();
        let schema = engine::events::event_schema(stream);
        basestream_bench::rows::archived(&self.purchases, &stream.name, &schema, 0, &numbers, first as i64).expect("rows")
    }

    pub fn newest(&self) -> i64 {
        self.purchases.newest()
    }

    pub fn session(&self) -> SessionContext {
        engine::plan::planning_session(&self.installed.installation.functions).expect("a session")
    }
}
