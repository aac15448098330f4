use super::*;

#[test]
fn every_name_of_utc_counts_as_utc() {
    for name in NAMES_OF_UTC {
        for name in [name.to_owned(), format!("etc/{name}")] {
            assert_eq!(Zone::named(&name).unwrap_or_else(|| panic!("{name}")).other_than_utc(), None, "{name}");
        }
    }
    for name in ["Europe/London", "Etc/GMT+1", "Etc/GMT-14", "Africa/Abidjan"] {
        assert_eq!(Zone::named(name).unwrap().other_than_utc(), Some(name));
    }
}
