use super::*;

#[test]
fn as_many_old_transitions_go_as_come() {
    for added in [0, 1, 9_999, 10_000, 25_000, 600_000] {
        let parts = parts_to_forget(added, 10_000);
        assert!(parts * 10_000 > added && (parts - 1) * 10_000 <= added, "{added}: {parts}");
    }
}
