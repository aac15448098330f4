use proptest::prelude::*;
use types::ErrorKind;

use super::*;
use crate::message::SectionHead;

fn head(bytes: usize) -> LayerHead {
    let section = SectionHead { view: "v".into(), version: 1, stamp: "s".into(), bytes, failures: None };
    LayerHead {
        owner: 1,
        start: Default::default(),
        end: Default::default(),
        max_event_time: Default::default(),
        complete_to: Vec::new(),
        sections: vec![section],
        published_at: 0,
    }
}

#[test]
fn too_few_bytes_are_refused_and_states_of_other_views_are_left_out() {
    let body = Bytes::from_static(b"1234");
    assert_eq!(decode(&head(5), &body, &Plans::new()).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(decode(&head(usize::MAX), &body, &Plans::new()).unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(decode(&head(4), &body, &Plans::new()).unwrap().states.is_empty());
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = batches(bytes.into());
    }
}
