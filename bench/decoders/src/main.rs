//! Every decoder, in turns, turns the same records into the same Arrow columns: `decoders [ROUNDS] [RECORDS] [NAME]`.
//! Without rounds, it only compares the columns. With NAME, it runs only the decoders whose name contains NAME, for a
//! profile. `decoders odd` shows how each decoder handles unusual records.

use std::time::Instant;

use arrow::array::RecordBatch;

use crate::column_builders::Failed;
use crate::contenders::{Contender, all};
use crate::product::{Column, ColumnType, Error, Result, StreamDefinition, TimeUnit, columns, record, sql_types, tiles, vector};
use crate::records::Records;

mod column_builders;
mod contenders;
#[allow(dead_code, unused_imports)]
mod events;
mod odd;
mod product;
mod records;

// The product's files name these crates; here they are this one.
extern crate self as definitions;
extern crate self as types;

/// The product's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Failed> {
    if std::env::args().nth(1).as_deref() == Some("odd") {
        return odd::tell();
    }
    let mut numbers =
        std::env::args().skip(1).take(2).map(|text| text.parse::<u64>().map_err(|_| format!("found {text}, expected a number")));
    let rounds = numbers.next().transpose()?.unwrap_or(0);
    let count = numbers.next().transpose()?.unwrap_or(5_000);
    let name = std::env::args().nth(3).unwrap_or_default();
    for records in [Records::payments(count), Records::purchases(count)] {
        let mut contenders = all(&records)?;
        contenders.retain(|contender| contender.name.contains(&name));
        hold(&records, &mut contenders)?;
        if rounds > 0 {
            measure(&records, &mut contenders, rounds)?;
        }
    }
    Ok(())
}

/// Checks that every decoder produces the product's columns.
fn hold(records: &Records, contenders: &mut [Contender]) -> Result<(), Failed> {
    let mut own: Option<RecordBatch> = None;
    for Contender { name, decode } in contenders.iter_mut() {
        let batch = own_columns(records, decode(records).map_err(|error| format!("{name}: {error}"))?)?;
        match &own {
            Some(own) if *own != batch => return Err(format!("{name}: its columns differ")),
            Some(_) => {}
            None => own = Some(batch),
        }
    }
    println!("{}: {} records, the same columns from all {} decoders", records.stream.name, records.records.len(), contenders.len());
    Ok(())
}

fn own_columns(records: &Records, batch: RecordBatch) -> Result<RecordBatch, Failed> {
    let own: Vec<usize> = (0..records.stream.columns.len()).collect();
    batch.project(&own).map_err(|error| error.to_string())
}

/// Measures rounds of all decoders in turns, so that other load on the machine affects all of them alike.
fn measure(records: &Records, contenders: &mut [Contender], rounds: u64) -> Result<(), Failed> {
    let mut taken = vec![Vec::new(); contenders.len()];
    for _ in 0..rounds {
        for (Contender { decode, .. }, taken) in contenders.iter_mut().zip(&mut taken) {
            let began = Instant::now();
            let batch = decode(records)?;
            taken.push(began.elapsed().as_secs_f64());
            drop(std::hint::black_box(batch));
        }
    }
    let count = records.records.len() as f64;
    println!("\n| {} ({:.0} bytes) | ns per record, minimum (median) | MB/s | ratio |", records.stream.name, records.bytes as f64 / count);
    println!("|---|---|---|---|");
    let mut own = None;
    for (contender, taken) in contenders.iter().zip(&mut taken) {
        taken.sort_by(f64::total_cmp);
        // The minimum is the cost; the median shows how busy the machine was.
        let (least, median) = (taken[0], taken[taken.len() / 2]);
        let own = *own.get_or_insert(least);
        let (nanos, usual) = (least * 1e9 / count, median * 1e9 / count);
        println!("| {} | {nanos:.0} ({usual:.0}) | {:.0} | {:.2} |", contender.name, records.bytes as f64 / least / 1e6, least / own);
    }
    println!();
    Ok(())
}
