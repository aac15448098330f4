use std::collections::BTreeSet;

use super::*;

#[test]
fn two_test_processes_have_no_port_in_common() {
    let (one, other) = (Ports::take().unwrap(), Ports::take().unwrap());
    let ports_of = |ports: &Ports| (0..20).map(|_| ports.next_free().unwrap()).collect::<BTreeSet<u16>>();
    let (of_one, of_other) = (ports_of(&one), ports_of(&other));
    assert_eq!((of_one.len(), of_other.len()), (20, 20));
    assert!(of_one.is_disjoint(&of_other), "{of_one:?} {of_other:?}");
}

#[test]
fn a_port_on_which_somebody_listens_is_passed_over() {
    let ports = Ports::take().unwrap();
    let first = ports.next_free().unwrap();
    let _listener = listen(first + 1);
    assert!(ports.next_free().unwrap() > first + 1);
}
