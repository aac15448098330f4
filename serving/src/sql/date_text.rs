//! Dates with a time zone, as JDBC sends them.

/// The date and the zone of a text such as `2026-02-02 +00`; `None` for any other text.
pub fn date_and_zone(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    // The first two are those within the date.
    let (end, _) = text.match_indices(['-', '+', ' ', 'Z', 'z']).nth(2)?;
    let (date, zone) = (&text[..end], text[end..].trim_start());
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_date = date.split('-').count() == 3 && date.split('-').all(is_number);
    let is_offset = |offset: &str| offset.split(':').all(|part| part.len() == 2 && is_number(part));
    let is_zone = zone.eq_ignore_ascii_case("z") || zone.strip_prefix(['+', '-']).is_some_and(is_offset);
    (is_date && is_zone).then_some((date, zone))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_told_from_its_zone() {
        for (text, zone) in [
            ("2026-02-02 +00", "+00"),
            (" 2026-02-02 -05:30 ", "-05:30"),
            ("2026-02-02-05", "-05"),
            ("2026-02-02+05:53:28", "+05:53:28"),
            ("2026-02-02Z", "Z"),
        ] {
            assert_eq!(date_and_zone(text), Some(("2026-02-02", zone)), "{text}");
        }
        for other in
            ["2026-02-02", "-0044-02-02", "2026-02-02 00:00:00+00", "2026-02-02 ", "2026-02-02 +0", "2026-02-02 UTC", "", "a-b-c +00"]
        {
            assert_eq!(date_and_zone(other), None, "{other}");
        }
    }
}
