use types::ErrorKind;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_pin_that_was_lost_while_files_were_read_is_an_error() {
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    let held = async || catalog.state().await.unwrap().leases.clone();
    let read = pinned(&catalog, "reader", async { Ok(held().await) }).await.unwrap();
    assert!(read.len() == 1 && read[0].name.starts_with("reader/") && read[0].pin == Some(Vector::new()), "{read:?}");
    assert!(held().await.is_empty(), "it is given back");
    let long_ago = wall() - 2 * LEASE.as_micros() as Micros;
    assert!(Pin::take(&catalog, "reader", wall()).await.unwrap().release().await);
    assert!(!Pin::take(&catalog, "reader", long_ago).await.unwrap().release().await);
    assert_eq!(read_under(false, 7).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(read_under(true, 7).unwrap(), 7);
}
