use uuid::Uuid;

use super::*;

fn record(started_at: Option<Micros>, ended_at: Option<Micros>, status: RunStatus) -> RunRecord {
    RunRecord {
        id: Uuid::nil(),
        view: VIEW.into(),
        version: 1,
        status,
        scheduled_for: None,
        attempt: 1,
        started_at,
        ended_at,
        cut: None,
        strategy: None,
        events_read: 0,
        rows_written: 0,
        bytes_written: 0,
        peak_memory_bytes: 0,
        bytes_read: 0,
        tiers: 0,
        peak_resident_bytes: 0,
        comparison: None,
        draft: None,
        beside: false,
        error: None,
    }
}

#[test]
fn runs_count_as_far_as_they_were_active_meanwhile() {
    let succeeded = RunStatus::Succeeded;
    let records = [
        record(None, None, RunStatus::Requested),
        record(Some(280), None, RunStatus::Running),
        record(Some(150), Some(200), succeeded),
        record(Some(50), Some(110), succeeded),
        record(Some(0), Some(90), succeeded),
        record(Some(310), Some(400), succeeded),
    ];
    assert_eq!(Active::between(&records, 100, 300).unwrap(), Active { runs: 3, share: 0.4 });
}

#[test]
fn a_run_that_failed_meanwhile_is_an_error() {
    let failed = record(Some(150), Some(200), RunStatus::Failed);
    assert!(Active::between(std::slice::from_ref(&failed), 100, 300).unwrap_err().to_string().contains("failed"));
    assert_eq!(Active::between(&[failed], 200, 300).unwrap(), Active { runs: 0, share: 0.0 });
}
