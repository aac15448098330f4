//! Grows and shrinks the lists of accumulators, whose memory is accounted for.

/// Like `reserve`, but by a quarter: what is not used yet is held as well.
pub(crate) fn make_room<T>(list: &mut Vec<T>, more: usize) {
    if list.capacity() - list.len() < more {
        list.reserve_exact(more.max(list.capacity() / 4));
    }
}

/// Gives memory back where most of it is not used.
pub(crate) fn give_back<T>(list: &mut Vec<T>) {
    if list.capacity() > 2 * list.len().max(64) {
        list.shrink_to(list.len() + list.len() / 4);
    }
}
