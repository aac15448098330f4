use super::*;

#[test]
fn terms_are_used_up_from_the_left() {
    let mut steps = parse("a=2*off->1*return(kill); b=return(delay:5)").unwrap();
    let a = steps.get_mut("a").unwrap();
    let met: Vec<Option<String>> = (0..4).map(|_| next(a)).collect();
    assert_eq!(met, [None, None, Some("kill".to_owned()), None]);
    assert_eq!(next(steps.get_mut("b").unwrap()).as_deref(), Some("delay:5"));
    assert_eq!(next(&mut parse("c=0%return(kill)").unwrap().remove("c").unwrap()), None);
    assert_eq!(parse("a=explode"), Err("a=explode".to_owned()));
}
