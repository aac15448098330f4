use super::*;

#[test]
fn a_worker_is_ready_once_it_reads_its_partitions_or_others_have_all_of_them() {
    let began = Instant::now();
    let after = |seconds: u64, activity: Activity| hindrance(activity, began + Duration::from_secs(seconds));
    assert_eq!(after(0, Activity::Starting).as_deref(), Some("a worker is joining its group"));
    let joined = Activity::Joined { since: began };
    assert_eq!(after(29, joined).as_deref(), Some("a worker waits for its partitions"));
    assert_eq!(after(30, joined), None, "a spare");
    let taking_over = Activity::TakingOver { partitions: 3 };
    assert_eq!(after(600, taking_over).as_deref(), Some("a worker is taking 3 partitions over"));
    for ready in [Activity::Reading { partitions: 3 }, Activity::Reading { partitions: 0 }, Activity::Idle] {
        assert_eq!(after(0, ready), None, "{ready:?}");
    }
}

#[test]
fn what_hinders_several_workers_is_named_once() {
    let layer = Layer::Speed(vec![WorkerProgress::default(), WorkerProgress::default()], StalledAlerts::default());
    assert_eq!(layer.hindrances(Instant::now()), BTreeSet::from(["a worker is joining its group".to_owned()]));
    let layer = Layer::Scheduler(DueCheck::default());
    assert_eq!(layer.hindrances(Instant::now()), BTreeSet::from(["due runs were not looked for yet".to_owned()]));
}
