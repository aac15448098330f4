//! The names of time zones.

use chrono_tz::{TZ_VARIANTS, Tz};
use types::suggest;

/// Returns the name of a time zone as it is spelled, from one in letters of any case.
pub fn known_name(name: &str) -> Option<&'static str> {
    let in_any_case = || TZ_VARIANTS.iter().find(|zone| zone.name().eq_ignore_ascii_case(name)).copied();
    name.parse::<Tz>().ok().or_else(in_any_case).map(|zone| zone.name())
}

/// What is expected instead of a name that no time zone has.
pub fn expected(name: &str) -> String {
    match suggest::nearest(name, TZ_VARIANTS.iter().map(|known| known.name())) {
        Some(near) => format!("did you mean '{near}'?"),
        None => "expected a name such as 'Europe/Berlin' or 'UTC'".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_zone_is_known_in_letters_of_any_case() {
        assert_eq!(known_name("europe/BERLIN"), Some("Europe/Berlin"));
        assert_eq!((known_name("UTC"), known_name("utc"), known_name("nowhere")), (Some("UTC"), Some("UTC"), None));
    }

    #[test]
    fn a_time_zone_with_a_similar_name_is_suggested() {
        assert_eq!(expected("Europe/Berlim"), "did you mean 'Europe/Berlin'?");
        assert_eq!(expected("xyzzy xyzzy xyzzy"), "expected a name such as 'Europe/Berlin' or 'UTC'");
    }
}
