//! Plots the samples: one small chart for each quantity.

use std::path::Path;

use plotters::prelude::*;
use types::{Error, Result};

use super::Options;
use super::sample::Series;

const COLUMNS: usize = 3;
const WIDTH: u32 = 420;
const HEIGHT: u32 = 220;

pub(super) fn write(path: &Path, series: &[Series], options: &Options) -> Result<()> {
    draw(path, series, options)
        .map_err(|error| Error::internal("the plot was not written").with("file", path.display()).with("error", error))
}

fn draw(path: &Path, series: &[Series], options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let rows = series.len().div_ceil(COLUMNS).max(1);
    let root = SVGBackend::new(path, (WIDTH * COLUMNS as u32, HEIGHT * rows as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, series) in root.split_evenly((rows, COLUMNS)).iter().zip(series) {
        let highest = series.points.iter().map(|(_, value)| *value).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let title = if series.unit.is_empty() { series.name.clone() } else { format!("{}, {}", series.name, series.unit) };
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 16))
            .margin(8)
            .x_label_area_size(24)
            .y_label_area_size(52)
            .build_cartesian_2d(0.0..options.minutes, 0.0..highest * 1.1)?;
        chart.configure_mesh().disable_x_mesh().x_labels(7).y_labels(4).label_style(("sans-serif", 11)).draw()?;
        let warm_up = [(options.warm_up_minutes, 0.0), (options.warm_up_minutes, highest * 1.1)];
        chart.draw_series(LineSeries::new(warm_up, &BLACK.mix(0.3)))?;
        chart.draw_series(LineSeries::new(series.points.iter().copied(), &BLUE))?;
    }
    root.present()?;
    Ok(())
}
