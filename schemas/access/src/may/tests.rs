use types::ErrorKind;

use super::*;

fn granted(role: Role, only: Option<(&[&str], &[&str])>) -> Principal {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let only = only.map(|(views, streams)| GrantScope { views: set(views), streams: set(streams) });
    Principal::new("ann", vec![Grant { role, only }])
}

/// All there is: a mark for each role, in the order of the header.
#[test]
fn the_table_of_rights() {
    use Action::*;
    use Object::*;
    let roles = [Role::Reader, Role::Writer, Role::Operator, Role::Admin];
    //                                       r w o a   and limited to view v and stream s
    let table = [
        (Read, View("v"), "y.yy", "y.y"),
        (Read, View("w"), "y.yy", "..."),
        (Read, Stream("s"), "y.yy", "y.y"),
        (Read, Stream("v"), "y.yy", "..."),
        (Read, System("runs"), "y.yy", "..."),
        (Read, Process, "y.yy", "..."),
        (Append, Stream("s"), ".y.y", ".y."),
        (Append, Stream("t"), ".y.y", "..."),
        (Operate, View("v"), "..yy", "..y"),
        (Operate, View("w"), "..yy", "..."),
        (Operate, Installation, "..yy", "..."),
        (Operate, Parameter("p"), "..yy", "..."),
        (Read, Parameter("p"), "y.yy", "..."),
        (Administer, Installation, "...y", "..."),
    ];
    for (action, object, all, limited) in table {
        let marks = |only: Option<(&[&str], &[&str])>, roles: &[Role]| -> String {
            roles.iter().map(|role| if may(&granted(*role, only), action, object) { 'y' } else { '.' }).collect()
        };
        assert_eq!(marks(None, &roles), all, "{action:?} {object:?}");
        assert_eq!(marks(Some((&["v"], &["s"])), &roles[..3]), limited, "{action:?} {object:?}, limited");
    }
}

#[test]
fn one_of_several_grants_is_enough_and_none_grants_nothing() {
    let mut both = granted(Role::Writer, None);
    both.grants.extend(granted(Role::Reader, Some((&["v"], &[]))).grants);
    assert!(may(&both, Action::Append, Object::Stream("s")) && may(&both, Action::Read, Object::View("v")));
    assert!(!may(&both, Action::Read, Object::View("w")));
    assert!(!may(&Principal::nobody(), Action::Read, Object::View("v")));
}

#[test]
fn some_view_is_read_by_who_has_a_grant_that_reads_one() {
    let reads = |role: Role, only: Option<(&[&str], &[&str])>| allow_some_view(&granted(role, only)).is_ok();
    assert!(reads(Role::Reader, None) && reads(Role::Operator, Some((&["v"], &[]))) && reads(Role::Admin, None));
    assert!(!reads(Role::Writer, None) && !reads(Role::Writer, Some((&[], &["s"]))) && !reads(Role::Reader, Some((&[], &["s"]))));
    let error = allow_some_view(&Principal::nobody()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden);
    assert_eq!(error.message(), "\"nobody\" may not read any view: expected the role reader, operator or admin");
}

#[test]
fn a_refusal_names_who_what_and_what_is_expected() {
    let error = allow(&granted(Role::Reader, None), Action::Append, Object::Stream("payments")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden);
    assert_eq!(
        error.message(),
        "\"ann\" may not append to the stream \"payments\": expected the role writer or admin, not limited to others"
    );
    assert_eq!(error.fact("roles"), Some("reader"));
}
