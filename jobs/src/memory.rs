//! Sets how long the allocator keeps unused memory.

use std::ffi::c_long;

/// Memory returned to the system comes back as zeroed pages. With mimalloc's default of one second that took a fifth of
/// a batch run's CPU time; with three seconds it takes little, at about the same peak memory (with ten seconds the peak
/// is a quarter higher).
const KEEP_MS: c_long = 3_000;
/// `mi_option_purge_delay` of mimalloc.h, the same in versions 2 and 3; the crate has no name for it.
const PURGE_DELAY: i32 = 15;

/// How long mimalloc keeps memory by default. Any other value was set by one of its variables.
const BY_ITSELF_MS: c_long = 1_000;

/// Makes the allocator keep freed memory for three seconds. mimalloc's own variable `MIMALLOC_PURGE_DELAY`
/// (milliseconds; -1: for ever) takes precedence.
#[allow(unsafe_code)]
pub fn keep_what_is_freed() {
    // SAFETY: both calls access one number of mimalloc's table of options, and the index is in the table.
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
        // SAFETY: reads a number of mimalloc's table of options.
        let set = || unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        assert_eq!(set(), BY_ITSELF_MS);
        keep_what_is_freed();
        assert_eq!(set(), KEEP_MS);
    }
}
