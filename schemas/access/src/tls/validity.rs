//! From when to when a certificate is valid (RFC 5280, section 4.1). rustls checks that of others' certificates, and
//! not of the server's own.

use chrono::{DateTime, NaiveDateTime, Utc};

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The tag of the version, which certificates of version 1 leave out.
const VERSION: u8 = 0xa0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) from: DateTime<Utc>,
    pub(super) until: DateTime<Utc>,
}

/// Reads it from a certificate in DER; `None` if it has another form.
pub(super) fn validity(certificate: &[u8]) -> Option<Validity> {
    let signed = element(element(certificate)?.content)?;
    let mut fields = signed.content;
    if fields.first() == Some(&VERSION) {
        fields = element(fields)?.rest;
    }
    // The serial number, the algorithm of the signature, and the issuer.
    for _ in 0..3 {
        fields = element(fields)?.rest;
    }
    let from = element(element(fields)?.content)?;
    let until = element(from.rest)?;
    Some(Validity { from: time(&from)?, until: time(&until)? })
}

/// An element of DER, and what follows it.
struct Element<'d> {
    tag: u8,
    content: &'d [u8],
    rest: &'d [u8],
}

fn element(der: &[u8]) -> Option<Element<'_>> {
    let (&[tag, first], mut rest) = der.split_first_chunk::<2>()?;
    let mut length = usize::from(first);
    // A greater length follows, in as many bytes as the first one says.
    if first >= 0x80 {
        let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
        rest = after;
        length = digits.iter().try_fold(0_usize, |length, digit| length.checked_mul(256)?.checked_add(usize::from(*digit)))?;
    }
    let (content, rest) = rest.split_at_checked(length)?;
    Some(Element { tag, content, rest })
}

fn time(element: &Element<'_>) -> Option<DateTime<Utc>> {
    let text = std::str::from_utf8(element.content).ok()?;
    let text = match element.tag {
        // Its year has two digits, from 1950 on.
        UTC_TIME if text.get(..2)? < "50" => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    NaiveDateTime::parse_from_str(&text, "%Y%m%d%H%M%SZ").ok().map(|time| time.and_utc())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn the_validity_is_read_before_and_after_2050() {
        for (from, until) in [((1975, 1, 1), (4096, 1, 1)), ((2020, 2, 29), (2021, 12, 31)), ((1999, 12, 31), (2049, 1, 2))] {
            let mut params = CertificateParams::new(vec!["a.name.that.is.long.enough.for.a.length.of.two.bytes".repeat(3)]).unwrap();
            params.not_before = date_time_ymd(from.0, from.1, from.2);
            params.not_after = date_time_ymd(until.0, until.1, until.2);
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            let day = |(year, month, day): (i32, u8, u8)| format!("{year}-{month:02}-{day:02}T00:00:00+00:00");
            let found = validity(certificate.der()).unwrap();
            assert_eq!((found.from.to_rfc3339(), found.until.to_rfc3339()), (day(from), day(until)));
        }
    }

    #[test]
    fn what_is_no_certificate_has_none() {
        let certificate = CertificateParams::new(vec!["a".to_owned()]).unwrap().self_signed(&KeyPair::generate().unwrap()).unwrap();
        for length in 0..100 {
            assert_eq!(validity(&certificate.der()[..length]), None, "{length}");
        }
        assert_eq!(validity(&[0x30, 0xff, 0xff]), None);
    }
}
