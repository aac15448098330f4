//! How long the allocator keeps memory that is not used.

use std::ffi::c_long;

/// Memory that was given back comes back as cleared pages: with mimalloc's own second that was a fifth of a batch run's processor time,
/// with three seconds a small part of that, at about the same peak (with ten a quarter more).
const KEEP_MS: c_long = 3_000;
/// `mi_option_purge_delay` of mimalloc.h, in its versions 2 and 3 alike; the crate has no name for it.
const PURGE_DELAY: i32 = 15;

/// How long mimalloc keeps memory by itself: another number was asked for by one of its variables.
const BY_ITSELF_MS: c_long = 1_000;

/// Has memory that was freed kept for three seconds. mimalloc's own variable `MIMALLOC_PURGE_DELAY` (milliseconds; -1: for ever) goes
/// before.
#[allow(unsafe_code)]
pub fn keep_what_is_freed() {
    // SAFETY: they read and store a number of mimalloc's table of options, whose index is in it.
    unsafe {
        if libmimalloc_sys::mi_option_get(PURGE_DELAY) == BY_ITSELF_MS {
            libmimalloc_sys::mi_option_set(PURGE_DELAY, KEEP_MS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code)]
    fn the_option_that_is_set_is_the_one_that_is_meant() {
        if std::env::var_os("MIMALLOC_PURGE_DELAY").is_some() {
            return;
        }
        // SAFETY: it reads a number from mimalloc's table of options.
        let set = || unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        assert_eq!(set(), BY_ITSELF_MS);
        keep_what_is_freed();
        assert_eq!(set(), KEEP_MS);
    }
}
