//! How each decoder handles unusual records (`decoders odd`).

use arrow::array::AsArray;
use arrow::datatypes::Decimal128Type;

use crate::column_builders::Failed;
use crate::contenders::{Contender, all};
use crate::records::Records;

/// What is unusual, and the text of the amount, with further members in some cases.
const ODD: [(&str, &[u8]); 12] = [
    ("nothing", b"1.25"),
    ("digits finer than the column's", b"12.345"),
    ("more digits than a float has", b"9007199254740993.07"),
    ("a number as text", b"\"12.30\""),
    ("a member twice", b"1.25,\"amount\":7.5"),
    ("a null", b"1.25,\"account_id\":null"),
    ("a time without a zone", b"1.25,\"ts\":\"2026-02-01T00:00:00\""),
    ("a control character in a text", b"1.25,\"other\":\"\t\""),
    ("an invalid number, in a member without a column", b"1.25,\"other\":01"),
    ("invalid UTF-8, in a member without a column", b"1.25,\"other\":\"\xff\""),
    ("a word after the record", b"1.25} x"),
    ("no amount", b""),
];

pub fn tell() -> Result<(), Failed> {
    for (what, amount) in ODD {
        println!("{what}");
        for Contender { name, mut decode } in all(&Records::one(b""))? {
            let reported = match decode(&Records::one(&record(amount))) {
                Ok(batch) => format!("{} cents", batch.column(4).as_primitive::<Decimal128Type>().value(0)),
                Err(error) => error.lines().next().unwrap_or_default().to_owned(),
            };
            println!("    {name}: {reported}");
        }
    }
    Ok(())
}

fn record(amount: &[u8]) -> Vec<u8> {
    let before = br#"{"event_id":"e","merchant_id":"m""#;
    let said = |name: &str| amount.windows(name.len()).any(|window| window == name.as_bytes());
    let mut record = before.to_vec();
    if !said("\"ts\"") {
        record.extend_from_slice(br#","ts":"2026-02-01T00:00:00Z""#);
    }
    if !said("\"account_id\"") {
        record.extend_from_slice(br#","account_id":"a""#);
    }
    if !amount.is_empty() {
        record.extend_from_slice(b",\"amount\":");
        record.extend_from_slice(amount);
    }
    if !amount.contains(&b'}') {
        record.push(b'}');
    }
    record
}
