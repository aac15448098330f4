use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Takes messages until one is not whole, or wrong.
fn read(bytes: &[u8]) -> Vec<Message> {
    let mut bytes = BytesMut::from(bytes);
    std::iter::from_fn(|| message(&mut bytes).ok().flatten()).collect()
}

fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![kind];
    out.extend(((body.len() + 4) as i32).to_be_bytes());
    out.extend(body);
    out
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes);
        let _ = opening(&mut BytesMut::from(&bytes[..]));
    }

    #[test]
    fn any_body_of_any_message_is_read_or_refused(
        kind in prop::sample::select(b"QPBDECHSXdcfp".to_vec()), body in vec(prop_oneof![Just(0u8), any::<u8>()], 0..80)
    ) {
        let mut bytes = BytesMut::from(&framed(kind, &body)[..]);
        // Whatever is inside, what follows is not touched.
        bytes.extend_from_slice(&framed(b'S', b""));
        let _ = message(&mut bytes);
        prop_assert_eq!(message(&mut bytes).unwrap(), Some(Message::Sync));
    }

    #[test]
    fn a_message_is_read_alike_however_it_comes(sql in "[^\\x00]{0,40}", cut in 0usize..60) {
        let mut body = sql.clone().into_bytes();
        body.push(0);
        let whole = framed(b'Q', &body);
        let cut = cut.min(whole.len());
        let mut bytes = BytesMut::from(&whole[..cut]);
        let early = message(&mut bytes).unwrap();
        prop_assert_eq!(early.is_some(), cut == whole.len());
        bytes.extend_from_slice(&whole[cut..]);
        let read = early.or_else(|| message(&mut bytes).unwrap());
        prop_assert_eq!(read, Some(Message::Query(sql)));
    }
}

#[test]
fn lengths_are_not_believed() {
    for length in [-1, 0, 3, i32::MIN, i32::MAX, MAX_MESSAGE_BYTES as i32 + 1] {
        let mut bytes = BytesMut::from(&b"Q"[..]);
        bytes.extend_from_slice(&length.to_be_bytes());
        assert!(message(&mut bytes).is_err(), "{length}");
        let mut bytes = BytesMut::from(&length.to_be_bytes()[..]);
        assert!(opening(&mut bytes).is_err(), "{length}");
    }
}

#[test]
fn a_startup_has_its_parameters() {
    let body = b"\0\x03\0\0user\0ann\0database\0shop\0\0";
    let mut bytes = BytesMut::from(&((body.len() + 4) as i32).to_be_bytes()[..]);
    bytes.extend_from_slice(body);
    let parameters = vec![("user".to_owned(), "ann".to_owned()), ("database".to_owned(), "shop".to_owned())];
    assert_eq!(opening(&mut bytes).unwrap(), Some(Opening::Startup { minor: 0, parameters }));
}
