//! Times and bandwidths as SVG: one curve a collective, both axes logarithmic.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::report::Row;

const WIDTH: u32 = 1000;
const HEIGHT: u32 = 480;

/// Draws both charts into a file.
pub(crate) fn draw(file: &Path, through: &str, ranks: usize, rows: &[Row]) -> Result<()> {
    let error = |error: String| anyhow!("drawing {}: {error}", file.display());
    if rows.is_empty() {
        return Err(error("there are no results".into()));
    }
    let area = SVGBackend::new(file, (WIDTH, HEIGHT)).into_drawing_area();
    let drawn = || -> Result<(), Box<dyn std::error::Error>> {
        area.fill(&WHITE)?;
        let area = area.titled(&format!("{through}, {ranks} ranks"), ("sans-serif", 15))?;
        let (left, right) = area.split_horizontally(WIDTH / 2);
        chart(&left, "time, microseconds", rows, |row| row.time_us)?;
        chart(&right, "bus bandwidth, GB/s", rows, |row| row.busbw_gbps)?;
        area.present()?;
        Ok(())
    };
    drawn().map_err(|why| error(why.to_string()))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn chart(
    area: &Area,
    title: &str,
    rows: &[Row],
    value: fn(&Row) -> f64,
) -> Result<(), Box<dyn std::error::Error>> {
    let points = |name: &str| -> Vec<(f64, f64)> {
        let of = rows.iter().filter(|row| row.collective == name);
        of.map(|row| (row.bytes.max(1) as f64, value(row))).filter(|(_, y)| *y > 0.0).collect()
    };
    let mut names: Vec<&str> = rows.iter().map(|row| row.collective.as_str()).collect();
    names.dedup();
    let all: Vec<(f64, f64)> = names.iter().flat_map(|name| points(name)).collect();
    let low = |pick: fn(&(f64, f64)) -> f64| all.iter().map(pick).fold(f64::MAX, f64::min);
    let high = |pick: fn(&(f64, f64)) -> f64| all.iter().map(pick).fold(0.0, f64::max);
    if all.is_empty() {
        return Ok(());
    }
    let (x, y) = (low(|p| p.0) / 1.5..high(|p| p.0) * 1.5, low(|p| p.1) / 1.5..high(|p| p.1) * 1.5);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 14))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(x.log_scale(), y.log_scale())?;
    chart
        .configure_mesh()
        .x_desc("bytes")
        .x_label_formatter(&|bytes| in_words(*bytes))
        .y_label_formatter(&|value| format!("{value}"))
        .draw()?;
    for (i, name) in names.iter().enumerate() {
        let colour = Palette99::pick(i).to_rgba();
        chart
            .draw_series(LineSeries::new(points(name), colour.stroke_width(2)).point_size(3))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .border_style(BLACK.mix(0.3))
        .background_style(WHITE.mix(0.8))
        .draw()?;
    Ok(())
}

fn in_words(bytes: f64) -> String {
    match bytes {
        b if b >= f64::from(1 << 30) => format!("{:.0} G", b / f64::from(1 << 30)),
        b if b >= f64::from(1 << 20) => format!("{:.0} M", b / f64::from(1 << 20)),
        b if b >= 1024.0 => format!("{:.0} K", b / 1024.0),
        b => format!("{b:.0}"),
    }
}
