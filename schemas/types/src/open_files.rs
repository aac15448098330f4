//! What the system allows this process: how many files and connections it may have open, how large its files may be.

/// A limit beyond this counts as no limit: some systems report infinity.
const MOST: u64 = 1 << 20;

/// Raises the limit as far as the system allows, and returns it: many systems begin with 1,024, which fewer connections
/// exhaust than there is memory for, and then no file can be opened either. `None` where it is not known.
#[cfg(unix)]
#[allow(unsafe_code)]
pub fn raise() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the system writes two numbers to where `limit` is, or fails.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return None;
    }
    let raised = libc::rlimit { rlim_cur: limit.rlim_max.min(MOST).max(limit.rlim_cur), ..limit };
    // SAFETY: the system reads two numbers. Where it refuses them, the limit stays.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) } {
        0 => Some(raised.rlim_cur),
        _ => Some(limit.rlim_cur),
    }
}

/// Only Unix has such a limit.
#[cfg(not(unix))]
pub fn raise() -> Option<u64> {
    None
}

/// Makes a write past the limit of a file's size (`ulimit -f`) fail, as on a full disk: the system would end the
/// process by a signal, without a word.
#[cfg(unix)]
#[allow(unsafe_code)]
pub fn fail_writes_past_size_limit() {
    // SAFETY: no handler is installed, the signal is ignored.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Only Unix has such a signal.
#[cfg(not(unix))]
pub fn fail_writes_past_size_limit() {}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    #[test]
    fn the_limit_is_raised_and_stays_so() {
        let raised = super::raise().unwrap();
        assert!(raised >= 256, "{raised}");
        assert_eq!(super::raise(), Some(raised));
    }
}
