//! The queries under way on this node, by the names that their tickets gave them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_flight::sql::Command;
use arrow_flight::{CancelStatus, FlightInfo};
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::tickets::{AskedQuery, command};

/// Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Queries(Arc<Mutex<RunningQueries>>);

#[derive(Default)]
struct RunningQueries {
    queries: HashMap<u64, Query>,
    next: u64,
}

struct Query {
    id: Bytes,
    /// Who asked.
    by: Arc<str>,
    cancelled: CancellationToken,
}

/// A query under way. It is over when this is dropped.
pub(crate) struct Running {
    all: Queries,
    serial: u64,
    pub(crate) cancelled: CancellationToken,
}

impl Queries {
    pub(crate) fn begin(&self, id: &Bytes, by: &Arc<str>) -> Running {
        let cancelled = CancellationToken::new();
        let mut under_way = self.lock();
        let serial = under_way.next;
        under_way.next += 1;
        under_way.queries.insert(serial, Query { id: id.clone(), by: by.clone(), cancelled: cancelled.clone() });
        Running { all: self.clone(), serial, cancelled }
    }

    /// Cancels what runs here for the tickets of this FlightInfo, if the same principal asked for it.
    pub(crate) fn cancel(&self, info: &FlightInfo, by: &Arc<str>) -> CancelStatus {
        let ids: Vec<Bytes> = info.endpoint.iter().filter_map(|endpoint| id(&endpoint.ticket.as_ref()?.ticket)).collect();
        let mut found = CancelStatus::NotCancellable;
        for query in self.lock().queries.values().filter(|query| query.by == *by && ids.contains(&query.id)) {
            query.cancelled.cancel();
            found = CancelStatus::Cancelled;
        }
        found
    }

    fn lock(&self) -> MutexGuard<'_, RunningQueries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.lock().queries.len()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.all.lock().queries.remove(&self.serial);
    }
}

fn id(ticket: &[u8]) -> Option<Bytes> {
    match command(ticket).ok()? {
        Command::TicketStatementQuery(ticket) => Some(AskedQuery::read(&ticket.statement_handle).ok()?.id).filter(|id| !id.is_empty()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use arrow_flight::FlightEndpoint;

    use super::*;

    fn info(query: &AskedQuery) -> FlightInfo {
        FlightInfo::new().with_endpoint(FlightEndpoint::new().with_ticket(query.ticket().unwrap()))
    }

    #[test]
    fn a_ticket_cancels_its_own_query_for_who_asked_it() {
        let all = Queries::default();
        let query = AskedQuery::new("SELECT 1".into(), None);
        let (ours, other) = (info(&query), info(&query));
        let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
        let running = |info: &FlightInfo| all.begin(&id(&info.endpoint[0].ticket.as_ref().unwrap().ticket).unwrap(), &ann);
        let (one, two) = (running(&ours), running(&other));

        assert_eq!(all.cancel(&ours, &bob), CancelStatus::NotCancellable);
        assert_eq!(all.cancel(&ours, &ann), CancelStatus::Cancelled);
        assert!(one.cancelled.is_cancelled() && !two.cancelled.is_cancelled());
        drop(one);
        assert_eq!(all.cancel(&ours, &ann), CancelStatus::NotCancellable);
        assert_eq!(all.count(), 1);
    }
}
