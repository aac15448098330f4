//! Which alerts a principal sees: those over views that it may read, for a record has values of the view's rows.

use std::sync::Arc;

use access::{Action, Object, Principal, allow, may};
use catalog::AlertVersion;
use committed::registry::{LiveAlert, Registry};
use types::suggest::expected;
use types::{Error, Result};

/// The live alerts that a principal sees, with their versions and by name; or the one that it asks for.
pub(super) fn versions(registry: &Registry, principal: &Principal, asked: Option<&str>) -> Result<Vec<AlertVersion>> {
    let mut found: Vec<&LiveAlert> = match asked {
        Some(name) => vec![one(registry, principal, name)?],
        None => registry.alerts.iter().filter(|alert| is_visible(principal, view_of(alert))).collect(),
    };
    found.sort_by(|a, b| (&a.name, a.version).cmp(&(&b.name, b.version)));
    Ok(found.into_iter().map(|alert| AlertVersion { name: alert.name.clone(), version: alert.version }).collect())
}

/// An alert that a principal asks for. One that may not read the process does not learn which alerts there are.
pub(super) fn one<'r>(registry: &'r Registry, principal: &Principal, name: &str) -> Result<&'r LiveAlert> {
    let found = registry.alerts.iter().find(|alert| &*alert.name == name);
    if let Some(alert) = found.filter(|alert| is_visible(principal, view_of(alert))) {
        return Ok(alert);
    }
    allow(principal, Action::Read, Object::Process).map_err(|_| {
        let message =
            format!("\"{}\" may not read the alert \"{name}\": expected a role that reads the view that it watches", principal.name);
        Error::forbidden(message).with("principal", &principal.name).with("roles", principal.roles())
    })?;
    let known: Vec<&str> = registry.alerts.iter().map(|alert| &*alert.name).collect();
    let expected = expected(name, &known, "CREATE ALERT makes one");
    Err(Error::not_found(format!("there is no alert \"{name}\": {expected}")))
}

/// The view that an alert watches, where it can be planned.
pub(super) fn view_of(alert: &LiveAlert) -> Option<&Arc<str>> {
    alert.plan.as_ref().ok().map(|plan| &plan.view.view)
}

/// What an alert without a view watches is not known: only who may read the process sees it.
pub(super) fn is_visible(principal: &Principal, view: Option<&Arc<str>>) -> bool {
    match view {
        Some(view) => may(principal, Action::Read, Object::View(view)),
        None => may(principal, Action::Read, Object::Process),
    }
}
