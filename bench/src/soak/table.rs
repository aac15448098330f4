//! Formats the samples as a table.

use super::Options;
use super::sample::Series;
use super::trend::Trend;
use crate::child::Used;
use crate::report::{Figure, Table};
use crate::spread::Spread;

pub(super) fn build(options: &Options, series: &[Series], appended: u64, used: Used) -> Table {
    let rows = series.iter().map(|series| row(options, series)).collect();
    Table {
        title: "One `up` with five views, one of them linked, each run every minute".into(),
        columns: ["", "unit", "after the warm-up", "slope per hour", "its standard error", "level"].map(str::to_owned).to_vec(),
        rows,
        notes: vec![
            format!(
                "{appended} events at {} a second over {} minutes, {} keys; at the end, every event of the window was counted once; {:.0} s of processor time; the \
                 feed and `up` share this machine's processors",
                options.rate, options.minutes, options.keys, used.processor_s
            ),
            format!(
                "figures: median (min - max) after the first {} minutes; the slope is that of a line by least squares",
                options.warm_up_minutes
            ),
            "level: the slope less two standard errors is at most 5 % of the median per hour".to_owned(),
            "no window looks back more than 5 minutes, the stream's retention is 10 minutes: storage grows until then".to_owned(),
        ],
    }
}

fn row(options: &Options, series: &Series) -> Vec<Figure> {
    let after: Vec<(f64, f64)> = series.points.iter().filter(|(minute, _)| *minute >= options.warm_up_minutes).copied().collect();
    let values = Spread::from_values(after.iter().map(|(_, value)| *value)).map_or(Figure::Absent, Figure::Number);
    let trend = Trend::fit(&after);
    let level = match trend {
        Some(trend) if series.is_held => Figure::text(if trend.is_level() { "yes" } else { "no" }),
        _ => Figure::Absent,
    };
    let number = |pick: fn(Trend) -> f64| trend.map_or(Figure::Absent, |trend| Figure::text(format!("{:.2}", pick(trend))));
    let (slope, error) = (number(|trend| trend.slope), number(|trend| trend.error));
    vec![Figure::text(&series.name), Figure::text(series.unit), values, slope, error, level]
}
