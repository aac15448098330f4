use arrow::util::display::array_value_to_string;

use super::*;
use crate::functions::Functions;
use crate::plan::planning_session;

async fn answer(sql: &str) -> types::Result<String> {
    let session = planning_session(&Functions::standard())?;
    session.register_udf(to_char());
    let batches = session.sql(sql).await?.collect().await?;
    Ok(array_value_to_string(batches[0].column(0), 0)?)
}

/// What PostgreSQL 15 returns of this time by these patterns.
const TIME: &str = "2026-03-05 14:07:09.123456";
const OF_POSTGRESQL: [(&str, &str); 20] = [
    ("YYYY-MM-DD", "2026-03-05"),
    ("YYYY-MM-DD HH24:MI:SS.MS", "2026-03-05 14:07:09.123"),
    ("YYYYMMDD\"T\"HH24MISS.US", "20260305T140709.123456"),
    ("FMDD FMMon YYYY", "5 Mar 2026"),
    ("FMDay, FMMonth FMDDDxQ", "Thursday, March 64x1"),
    ("Dy HH12:MI am", "Thu 02:07 pm"),
    ("HH AM", "02 PM"),
    ("iyyy-iw-id", "2026-10-4"),
    ("YY/FMMM/DDD FF3 FF6", "26/3/064 123 123456"),
    ("\"a\\\"b\" \\\"dd\\\"", "a\"b \"05\""),
    ("T", "T"),
    ("yyyy年mm月", "2026年03月"),
    ("FMYYYY FMHH24 FMMI FMSS FMHH12 FMIW", "2026 14 7 9 2 10"),
    ("FMMS FMQ FMMon FMDy FMAM", "123 1 Mar Thu PM"),
    ("Am", "Am"),
    ("hh24:mi:ss", "14:07:09"),
    ("hh12 hh", "02 02"),
    ("IYYY FMIYYY", "2026 2026"),
    ("YYYY\"-MM", "2026-MM"),
    ("%H:%M", "14:07"),
];

#[tokio::test]
async fn a_time_is_written_as_postgresql_writes_it() {
    for (pattern, expected) in OF_POSTGRESQL {
        for time in [format!("TIMESTAMP '{TIME}'"), format!("TIMESTAMPTZ '{TIME}Z'")] {
            let constant = answer(&format!("SELECT to_char({time}, '{pattern}')")).await;
            assert_eq!(constant.unwrap(), expected, "{pattern} of {time}");
            let columns = format!("SELECT to_char(t, p) FROM (VALUES ({time}, '{pattern}')) AS times(t, p)");
            assert_eq!(answer(&columns).await.unwrap(), expected, "{pattern} of {time} in a column");
        }
    }
    assert_eq!(answer("SELECT date_format(DATE '2026-03-05', 'DD.MM.YY HH24')").await.unwrap(), "05.03.26 00");
    assert_eq!(answer(&format!("SELECT to_char(TIMESTAMP '{TIME}', NULL) IS NULL")).await.unwrap(), "true");
}

#[tokio::test]
async fn a_field_that_chrono_does_not_have_is_named() {
    let fields = [
        ("Month YYYY", "found Month"),
        ("DAY", "found DAY"),
        ("day", "found day"),
        ("mon", "found mon"),
        ("YYYY-MM-DDTHH24", "found DDTH"),
        ("FMDDth", "found DDth"),
        ("Yyyy", "found Y:"),
        ("YYYY WW", "found WW"),
        ("IYY", "found IYY"),
        ("SSSS", "found SSSS"),
        ("YYYY TZ", "found TZ"),
        ("TMMonth", "found TM"),
        ("FM YYYY", "found FM before what is no field"),
        ("HH a.m.", "found a.m."),
        ("d", "found d:"),
        ("", "found an empty text"),
    ];
    for (pattern, found) in fields {
        let constant = answer(&format!("SELECT to_char(TIMESTAMP '{TIME}', '{pattern}') WHERE false")).await.unwrap_err();
        let columns = format!("SELECT to_char(t, p) FROM (VALUES (TIMESTAMP '{TIME}', '{pattern}')) AS times(t, p)");
        for error in [constant, answer(&columns).await.unwrap_err()] {
            assert_eq!(error.reason(), Some(Reason::NotSupported), "{pattern}: {error}");
            assert!(error.message().contains(&format!("'{pattern}' is not supported: {found}")), "{pattern}: {error}");
        }
    }
}

#[tokio::test]
async fn a_difference_of_times_has_one_pattern() {
    let difference = format!("TIMESTAMP '{TIME}' - TIMESTAMP '2026-03-05 12:00:00'");
    assert_eq!(answer(&format!("SELECT to_char({difference}, 'iso8601')")).await.unwrap(), "PT7629.123456S");
    let error = answer(&format!("SELECT to_char({difference}, 'HH24:MI')")).await.unwrap_err();
    assert!(error.message().contains("found the pattern 'HH24:MI', expected 'ISO8601'"), "{error}");
}
