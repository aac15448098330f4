//! `system.alerts`: the keys that satisfy the conditions of alerts now. They are not part of a read view: they are read
//! from the catalog page by page, as far as the query reads.

use std::collections::BTreeSet;
use std::fmt;
use std::future::ready;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use catalog::{AlertVersion, Catalog, OpenAlert};
use committed::registry::{LiveAlert, Registry};
use datafusion::catalog::Session;
use datafusion::common::ScalarValue;
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use futures::{StreamExt, stream};
use types::Result;

use crate::open_alerts::{OpenAlerts, READ_AT_ONCE};
use crate::sql::equality::values_of;
use crate::sql::source::SourceExec;
use crate::sql::system::columns::NamedColumns;
use crate::sql::table::{NodeTable, PlanFuture, ScanArgs};

pub(super) struct AlertsTable {
    catalog: Catalog,
    /// The live alerts, by name.
    live: Vec<AlertVersion>,
    schema: SchemaRef,
}

impl AlertsTable {
    pub(super) fn new(catalog: &Catalog, registry: &Registry) -> Result<Self> {
        let version = |alert: &LiveAlert| AlertVersion { name: alert.name.clone(), version: alert.version };
        let mut live: Vec<AlertVersion> = registry.alerts.iter().map(version).collect();
        live.sort();
        Ok(Self { catalog: catalog.clone(), live, schema: rows(&[])?.schema() })
    }
}

impl fmt::Debug for AlertsTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("system.alerts")
    }
}

impl NodeTable for AlertsTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn pushdown(&self, filter: &Expr) -> TableProviderFilterPushDown {
        match names(filter) {
            Some(_) => TableProviderFilterPushDown::Exact,
            None => TableProviderFilterPushDown::Unsupported,
        }
    }

    fn scan<'a>(&'a self, _: &'a dyn Session, args: ScanArgs<'a>) -> PlanFuture<'a> {
        Box::pin(ready(self.plan(args)))
    }
}

impl AlertsTable {
    fn plan(&self, args: ScanArgs<'_>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let mut live = self.live.clone();
        for named in args.filters.iter().filter_map(names) {
            live.retain(|alert| named.contains(&*alert.name));
        }
        let (columns, limit) = (args.columns(&self.schema), args.limit);
        let schema = Arc::new(self.schema.project(&columns)?);
        let listed = live.iter().map(|alert| &*alert.name).collect::<Vec<_>>().join(", ");
        let detail = format!("alerts=[{listed}] limit={}", limit.map_or("none".to_owned(), |limit| limit.to_string()));
        let reading = Reading { open_alerts: OpenAlerts::new(&self.catalog, live, None), left: limit.unwrap_or(usize::MAX) };
        let open = move |_| {
            let columns = columns.clone();
            let pages = stream::try_unfold(Some(reading.clone()), Reading::page);
            pages.map(move |page| Ok(page?.project(&columns)?)).boxed()
        };
        let source = SourceExec::new("OpenAlertsExec", detail, schema, Arc::new(open));
        Ok(match limit.filter(|limit| *limit <= READ_AT_ONCE as usize) {
            Some(limit) => source.light(limit),
            None => source,
        })
    }
}

/// Returns the alerts to which a term restricts the query. `None` for a term about something else.
fn names(term: &Expr) -> Option<BTreeSet<String>> {
    let values = values_of(term, "alert", &DataType::Utf8)?;
    let name = |value: ScalarValue| match value {
        ScalarValue::Utf8(name) => name,
        _ => None,
    };
    Some(values.into_iter().filter_map(name).collect())
}

#[derive(Clone)]
struct Reading {
    open_alerts: OpenAlerts,
    left: usize,
}

impl Reading {
    async fn page(reading: Option<Reading>) -> Result<Option<(RecordBatch, Option<Reading>)>> {
        let Some(mut reading) = reading else { return Ok(None) };
        let page = reading.open_alerts.next(u32::try_from(reading.left).unwrap_or(u32::MAX)).await?;
        let batch = rows(&page.open)?;
        reading.left -= page.open.len();
        let has_next = page.may_have_next && reading.left > 0;
        Ok(Some((batch, has_next.then_some(reading))))
    }
}

fn rows(open: &[OpenAlert]) -> Result<RecordBatch> {
    NamedColumns::default()
        .text("alert", open, |open| Some(&open.alert))
        .integer("version", open, |open| Some(open.version.into()))
        .text("key", open, |open| Some(&open.keys))
        .time("since", open, |open| Some(open.since))
        .time("at", open, |open| Some(open.last_put_out))
        .integer("seq", open, |open| Some(open.seq))
        .text("record", open, |open| Some(&open.record).filter(|record| !record.is_empty()))
        .batch()
}
