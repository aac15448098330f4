//! The keys that satisfy the conditions of alerts now, as the catalog has them: `GET /v1/alerts` and `system.alerts`
//! both read them from here, some at a time.

use std::sync::Arc;

use catalog::{AlertVersion, Catalog, OpenAlert, OpenAlertName, Revision};
use types::Result;

/// Open alerts that are read together. One takes up to a megabyte.
pub(crate) const READ_AT_ONCE: u32 = 100;

/// Reads the open alerts of some versions, in the order of those, and of one version by key.
#[derive(Clone)]
pub(crate) struct OpenAlerts {
    catalog: Catalog,
    versions: Arc<[AlertVersion]>,
    last: Option<OpenAlertName>,
}

/// What was read together.
pub(crate) struct OpenAlertsPage {
    /// The catalog's at that moment.
    pub(crate) revision: Revision,
    pub(crate) open: Vec<OpenAlert>,
    /// False if these were the last ones.
    pub(crate) may_have_next: bool,
}

impl OpenAlerts {
    /// Begins after an open alert, whether it is still open or not.
    pub(crate) fn new(catalog: &Catalog, versions: Vec<AlertVersion>, after: Option<OpenAlertName>) -> Self {
        Self { catalog: catalog.clone(), versions: versions.into(), last: after }
    }

    /// The last one that was read.
    pub(crate) fn last(&self) -> Option<&OpenAlertName> {
        self.last.as_ref()
    }

    /// Reads the next ones: at most `most`, and at most [`READ_AT_ONCE`].
    pub(crate) async fn next(&mut self, most: u32) -> Result<OpenAlertsPage> {
        let wanted = most.min(READ_AT_ONCE);
        let (revision, open) = self.catalog.open_alerts_of(&self.versions, self.last.as_ref(), wanted).await?;
        if let Some(last) = open.last() {
            self.last = Some(OpenAlertName::new(last));
        }
        Ok(OpenAlertsPage { revision, may_have_next: open.len() == wanted as usize, open })
    }
}
