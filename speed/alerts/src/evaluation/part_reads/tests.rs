use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{TryRecvError, channel};
use std::time::Duration;

use types::{Error, ErrorKind, timed_out};

use super::*;

#[tokio::test]
async fn the_next_part_is_read_while_one_is_used_and_no_other() {
    let (begins, begun) = channel();
    let is_reading = AtomicBool::new(false);
    let mut reads = PartReads::begin(vec![1, 2, 3], move |part: u32| {
        assert!(!is_reading.swap(true, Ordering::SeqCst), "two parts are read at once");
        begins.send(part).unwrap();
        // One that begins too early begins meanwhile.
        std::thread::sleep(Duration::from_millis(20));
        is_reading.store(false, Ordering::SeqCst);
        Ok(part * 10)
    });
    let next_begun = || begun.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| timed_out::fail("a part to be read"));
    assert_eq!(next_begun(), 1);
    for part in [1, 2] {
        assert_eq!(reads.next().await.unwrap(), Some(part * 10));
        assert_eq!(next_begun(), part + 1);
        assert_eq!(begun.try_recv(), Err(TryRecvError::Empty));
    }
    assert_eq!(reads.next().await.unwrap(), Some(30));
    assert_eq!(reads.next().await.unwrap(), None);
}

#[tokio::test]
async fn without_parts_nothing_is_read() {
    let mut reads = PartReads::begin(Vec::new(), |part: u32| Ok(part));
    assert_eq!(reads.next().await.unwrap(), None);
}

#[tokio::test]
async fn a_part_that_cannot_be_read_is_an_error_and_not_the_end() {
    let read = |part: u32| if part == 2 { Err(Error::unavailable("it is being copied")) } else { Ok(part) };
    let mut reads = PartReads::begin(vec![1, 2, 3], read);
    assert_eq!(reads.next().await.unwrap(), Some(1));
    assert_eq!(reads.next().await.unwrap_err().kind(), ErrorKind::Unavailable);
}
