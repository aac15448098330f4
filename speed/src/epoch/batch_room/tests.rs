use super::*;

const MEMORY_BYTES: usize = 128 << 20;

/// Micro-batches as full as they may be, of records of which each byte takes this many.
fn filled(room: &mut BatchRoom, per_byte: usize, micro_batches: usize) {
    for _ in 0..micro_batches {
        let records = room.record_bytes();
        room.note(records, records * per_byte);
    }
}

#[test]
fn a_micro_batch_takes_its_part_of_the_memory() {
    for per_byte in [1, 2, 30, 1_000] {
        let mut room = BatchRoom::new(MEMORY_BYTES);
        filled(&mut room, per_byte, 10);
        let taken = room.record_bytes() * per_byte;
        assert!(taken <= MEMORY_BYTES / PARTS && taken > MEMORY_BYTES / PARTS / 2, "{per_byte}: {taken}");
    }
}

#[test]
fn the_first_micro_batch_is_small() {
    assert!(BatchRoom::new(MEMORY_BYTES).record_bytes() * UNKNOWN <= MEMORY_BYTES / PARTS);
}

#[test]
fn more_is_expected_at_once_and_less_step_by_step() {
    let mut room = BatchRoom::new(MEMORY_BYTES);
    filled(&mut room, 1, 10);
    filled(&mut room, 100, 1);
    assert!(room.record_bytes() * 100 <= MEMORY_BYTES / PARTS);
    filled(&mut room, 1, 1);
    assert!(room.record_bytes() * 50 <= MEMORY_BYTES / PARTS);
}

#[test]
fn a_small_micro_batch_says_nothing() {
    let mut room = BatchRoom::new(MEMORY_BYTES);
    filled(&mut room, 2, 10);
    let expected = room.record_bytes();
    room.note(100, 100_000);
    assert_eq!(room.record_bytes(), expected);
}

#[test]
fn there_is_room_for_something_in_any_memory() {
    let mut room = BatchRoom::new(1);
    assert_eq!(room.record_bytes(), 1);
    room.note(300, 0);
    assert_eq!(room.record_bytes(), 1);
}
