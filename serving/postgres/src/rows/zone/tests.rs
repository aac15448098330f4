use super::*;

#[test]
fn every_name_of_utc_counts_as_utc() {
    for name in NAMES_OF_UTC {
        for name in [name.to_owned(), format!("etc/{name}")] {
            assert_eq!(Zone::named(&name).unwrap_or_else(|| panic!("{name}")).other_than_utc(), None, "{name}");
        }
    }
    for name in ["Europe/London", "Etc/GMT+1", "Etc/GMT-14", "Africa/Abidjan"] {
        assert_eq!(Zone::named(name).unwrap().other_than_utc().as_deref(), Some(name));
    }
}

/// As PostgreSQL 15 reads and shows them.
#[test]
fn an_offset_has_the_sign_and_the_spelling_that_postgresql_gives_it() {
    for (text, shown, offset) in [
        ("2", "<+02>-02", Some("+02:00")),
        ("+02", "<+02>-02", Some("+02:00")),
        ("-2", "<-02>+02", Some("-02:00")),
        ("2.5", "<+02:30>-02:30", Some("+02:30")),
        ("-7.75", "<-07:45>+07:45", Some("-07:45")),
        (".5", "<+00:30>-00:30", Some("+00:30")),
        ("+14", "<+14>-14", Some("+14:00")),
        ("-0", "<+00>-00", None),
        ("INTERVAL '+02:00' HOUR TO MINUTE", "<+02>-02", Some("+02:00")),
        ("interval '-2:30' hour to minute", "<-02:30>+02:30", Some("-02:30")),
        ("INTERVAL '05:30:00'", "<+05:30>-05:30", Some("+05:30")),
        ("INTERVAL '-7 hours'", "<-07>+07", Some("-07:00")),
        ("INTERVAL '2' HOUR", "<+02>-02", Some("+02:00")),
        ("+02:00", "+02:00", Some("-02:00")),
        ("-02:30", "-02:30", Some("+02:30")),
        ("02:30", "02:30", Some("-02:30")),
        ("+00:00", "+00:00", None),
        // From pgjdbc in the JVM's zone GMT+02:00.
        ("GMT-02:00", "GMT-02:00", Some("+02:00")),
        ("utc-2", "UTC-2", Some("+02:00")),
        ("JST-9", "JST-9", Some("+09:00")),
        ("<+02>-2", "<+02>-2", Some("+02:00")),
        ("<-08>+08", "<-08>+08", Some("-08:00")),
        ("Etc/GMT+2", "Etc/GMT+2", Some("Etc/GMT+2")),
        ("est5edt", "EST5EDT", Some("EST5EDT")),
    ] {
        let zone = Zone::named(text).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(zone.other_than_utc().as_deref(), offset, "{text}");
        assert_eq!(Zone::spelled(text).as_deref(), Some(shown), "{text}");
        assert_eq!((Zone::named(shown), Zone::spelled(shown).as_deref()), (Some(zone), Some(shown)), "{text}");
    }
}

#[test]
fn an_offset_that_arrow_has_not_or_that_is_not_clear_is_no_zone() {
    for text in [
        "",
        "+",
        "24",
        "-24",
        "1e400",
        "nan",
        "5.7575",
        "0x10",
        "2 ",
        "+0230",
        "+02:60",
        "+02:00:15",
        "UTC+",
        "UTC+24",
        "UTC +2",
        "<+02",
        "<+02>",
        "CET-1CEST",
        "Berlin/Mitte+2",
        "INTERVAL '24:00'",
        "INTERVAL '1 day'",
        "INTERVAL '2'",
        "INTERVAL '2' HOUR TO MINUTE",
        "INTERVAL '2.5' HOUR",
        "INTERVAL '2:30' HOUR",
        "INTERVAL 2",
        "interval",
    ] {
        assert_eq!(Zone::named(text), None, "{text}");
    }
}
