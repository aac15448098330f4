use super::*;

#[test]
fn one_mistake_stays_as_it_is_and_several_are_listed() {
    Mistakes::default().into_result().unwrap();
    let mut mistakes = Mistakes::default();
    assert_eq!(mistakes.noted(Ok(3)).unwrap(), Some(3));
    let missing = || Err::<(), _>(Error::not_found("there is no sink \"a\"").with("help", "define it"));
    assert_eq!(mistakes.noted(missing()).unwrap(), None);
    let one = mistakes.into_result().unwrap_err();
    assert_eq!((one.kind(), one.fact("help")), (ErrorKind::NotFound, Some("define it")));

    let mut mistakes = Mistakes::default();
    mistakes.add(Error::input("the range is empty"));
    mistakes.noted(missing()).unwrap();
    assert_eq!(mistakes.noted(Err::<(), _>(Error::unavailable("down"))).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(Mistakes::default().before(Ok(3)).unwrap(), 3);
    let down = || Err::<(), _>(Error::unavailable("down"));
    assert_eq!(Mistakes::default().before(down()).unwrap_err().kind(), ErrorKind::Unavailable);
    let mut range = Mistakes::default();
    range.add(Error::input("the range is empty"));
    assert_eq!(range.before(down()).unwrap_err().to_string(), "the range is empty");

    let both = mistakes.into_result().unwrap_err();
    assert_eq!(both.to_string(), "2 mistakes:\n- the range is empty\n- there is no sink \"a\" (help: define it)");
    assert_eq!(both.kind(), ErrorKind::Input);
}
