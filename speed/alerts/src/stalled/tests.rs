use super::*;

#[test]
fn an_outage_says_of_each_alert_why_it_is_not_evaluated() {
    let stalled = StalledAlerts::default();
    assert!(stalled.outage().is_none());
    stalled.note("much", "no right".into());
    stalled.note("silent", "no topic; it was deleted".into());
    let outage = stalled.outage().unwrap();
    assert_eq!(outage.what, ALERT_STALLED);
    assert_eq!(outage.error, "the alert \"much\": no right; the alert \"silent\": no topic; it was deleted");
    let errors = [("much", "no right"), ("silent", "no topic; it was deleted")];
    assert_eq!(outage.errors, errors.map(|(alert, error)| (alert.into(), error.into())).into());
    stalled.clear("much");
    assert_eq!(stalled.outage().unwrap().error, "the alert \"silent\": no topic; it was deleted");
}
