//! A plot of the rows: times over sizes, both logarithmic.

use plotters::prelude::*;

use super::Row;

/// A line's name, colour and times.
type Line = (&'static str, RGBColor, fn(&Row) -> Option<f64>);

const LINES: [Line; 5] = [
    ("hetccl", RGBColor(0, 90, 200), |row| Some(row.time_us)),
    ("lower bound", RGBColor(0, 0, 0), |row| Some(row.lower_bound_us)),
    ("flat ring", RGBColor(210, 120, 0), |row| row.flat_ring_us),
    ("host relay", RGBColor(200, 0, 0), |row| row.host_relay_us),
    ("single owner", RGBColor(120, 0, 160), |row| row.single_owner_us),
];

/// An SVG of the rows.
///
/// # Errors
/// What the plotting library says.
pub fn plot(title: &str, rows: &[Row]) -> Result<String, String> {
    let mut svg = String::new();
    draw(title, rows, &mut svg).map_err(|error| error.to_string())?;
    Ok(svg)
}

fn draw(title: &str, rows: &[Row], svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(svg, (760, 460)).into_drawing_area();
    area.fill(&WHITE)?;
    let times = || rows.iter().flat_map(|row| LINES.iter().filter_map(|line| line.2(row)));
    let low = times().fold(f64::INFINITY, f64::min).max(0.1);
    let high = times().fold(low * 2.0, f64::max);
    let sizes = || rows.iter().map(|row| row.bytes.max(1) as f64);
    let (first, last) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(1.0, f64::max));
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(
            (first.min(last / 2.0)..last).log_scale().base(2.0),
            (low * 0.8..high * 1.3).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("bytes")
        .y_desc("us")
        .x_label_formatter(&|bytes| size(*bytes))
        .draw()?;
    for (name, colour, time) in LINES {
        let points: Vec<(f64, f64)> =
            rows.iter().filter_map(|row| Some((row.bytes.max(1) as f64, time(row)?))).collect();
        if points.is_empty() {
            continue;
        }
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    area.present()?;
    Ok(())
}

/// A size for people: 4 KiB, 64 MiB.
fn size(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = ((bytes.log2() / 10.0).floor() as usize).min(units.len() - 1);
    format!("{:.0} {}", bytes / f64::from(1u32 << 10).powi(power as i32), units[power])
}
