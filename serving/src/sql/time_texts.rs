//! Converts texts that are cast to dates, times and intervals, in spellings that DataFusion does not know: times
//! without seconds, dates with a time or a zone, `'today'`, and hours and minutes of an interval.

use datafusion::sql::sqlparser::ast::{DataType, Expr, TimezoneInfo};
use types::Result;

use super::date_text::date_and_zone;
use super::literals::{expression, literal};

/// Texts that stand for a time which depends on the moment of the query.
const MOMENTS: [(&str, &str); 4] = [
    ("now", "now()"),
    ("today", "current_date"),
    ("yesterday", "current_date - INTERVAL '1 day'"),
    ("tomorrow", "current_date + INTERVAL '1 day'"),
];

/// Returns the value that is cast to the type instead of the text. `None` if DataFusion knows the text.
pub(super) fn known_value(data_type: &DataType, text: &str) -> Result<Option<Expr>> {
    let known = match data_type {
        DataType::Interval { .. } => with_units(text),
        DataType::Date | DataType::Timestamp(..) => match moment(text) {
            Some(moment) => return expression(moment).map(Some),
            None => known_time(data_type, text),
        },
        _ => None,
    };
    Ok(known.map(|text| literal(Some(text))))
}

fn moment(text: &str) -> Option<&'static str> {
    MOMENTS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text.trim())).map(|(_, moment)| *moment)
}

/// The spelling that DataFusion knows of a time or a date in one that it does not.
fn known_time(data_type: &DataType, text: &str) -> Option<String> {
    match (data_type, date_and_zone(text)) {
        (DataType::Date, Some((date, _))) => Some(date.to_owned()),
        (DataType::Date, None) => with_seconds(text).map(|time| time.chars().take("0000-00-00".len()).collect()),
        // The zone of a date means nothing where the time has none.
        (DataType::Timestamp(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone), Some((date, _))) => Some(format!("{date} 00:00:00")),
        (_, Some((date, zone))) => Some(format!("{date} 00:00:00{zone}")),
        (_, None) => with_seconds(text),
    }
}

/// Adds seconds to a text such as `2026-01-01 02:30`. `None` for a text that has them or is something else.
fn with_seconds(text: &str) -> Option<String> {
    const FORM: &[u8] = b"0000-00-00 00:00";
    let (minutes, rest) = text.trim().split_at_checked(FORM.len())?;
    let is_like = |(found, form): (u8, &u8)| match *form {
        b'0' => found.is_ascii_digit(),
        b' ' => matches!(found, b' ' | b'T' | b't'),
        sign => found == sign,
    };
    // With a fraction, PostgreSQL takes the two numbers for minutes and seconds.
    let goes_on = rest.starts_with(|next: char| matches!(next, ':' | '.') || next.is_ascii_digit());
    (minutes.bytes().zip(FORM).all(is_like) && !goes_on).then(|| format!("{minutes}:00{rest}"))
}

/// Rewrites `1 day 1:30` to `1 day 1 hours 30 minutes`. `None` for an interval without such a time at its end.
pub(super) fn with_units(text: &str) -> Option<String> {
    let text = text.trim();
    let (before, time) = text.rsplit_once(char::is_whitespace).unwrap_or(("", text));
    let (sign, unsigned) = match time.strip_prefix('-') {
        Some(unsigned) => ("-", unsigned),
        None => ("", time.strip_prefix('+').unwrap_or(time)),
    };
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_sixtieth = |part: &str| is_number(part) && part.parse::<u32>().is_ok_and(|number| number < 60);
    let (hours, rest) = unsigned.split_once(':')?;
    let (minutes, seconds) = rest.split_once(':').unwrap_or((rest, "0"));
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let is_time = is_number(hours) && is_sixtieth(minutes) && is_sixtieth(whole) && is_number(fraction);
    let units = format!("{sign}{hours} hours {sign}{minutes} minutes {sign}{seconds} seconds");
    is_time.then(|| if before.is_empty() { units } else { format!("{} {units}", before.trim_end()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_and_minutes_have_units() {
        for (text, expected) in [
            ("1:30", "1 hours 30 minutes 0 seconds"),
            (" 2 days  -01:30:15.5", "2 days -01 hours -30 minutes -15.5 seconds"),
            ("+100:00:00", "100 hours 00 minutes 00 seconds"),
        ] {
            assert_eq!(with_units(text).as_deref(), Some(expected));
        }
        for other in ["1 day", "1:60", "1:2:3:4", "a:30", "1:", "1:30 days", "1:30:", ""] {
            assert_eq!(with_units(other), None, "{other}");
        }
    }
}
