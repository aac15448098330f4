use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn what_was_pushed_is_read(unsigned in any::<u64>(), signed in any::<i64>(), small in -64i64..64) {
        let mut bytes = Vec::new();
        push(&mut bytes, unsigned);
        push_signed(&mut bytes, signed);
        let before = bytes.len();
        push_signed(&mut bytes, small);
        prop_assert_eq!(bytes.len() - before, 1, "a small number takes a byte");
        let mut reader = NumberReader(&bytes);
        prop_assert_eq!(reader.number().unwrap(), unsigned);
        prop_assert_eq!(reader.signed().unwrap(), signed);
        prop_assert!(reader.end().is_err());
        prop_assert_eq!(reader.signed().unwrap(), small);
        prop_assert!(reader.end().is_ok() && reader.number().is_err());
    }
}

#[test]
fn a_number_that_is_too_long_is_refused() {
    for (bytes, is_number) in
        [(vec![0xff; 9], false), ([vec![0xff; 9], vec![1]].concat(), true), ([vec![0xff; 9], vec![2]].concat(), false)]
    {
        assert_eq!(NumberReader(&bytes).number().is_ok(), is_number, "{bytes:?}");
    }
    assert_eq!(NumberReader(&[vec![0xff; 9], vec![1]].concat()).number().unwrap(), u64::MAX);
}
