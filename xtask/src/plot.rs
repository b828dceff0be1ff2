//! A small SVG: ratios over message sizes, one panel per collective.

use std::fmt::Write;

/// A point: bytes, and a time divided by the best peer's.
pub type Point = (f64, f64);

const PANEL_WIDTH: f64 = 260.0;
const PANEL_HEIGHT: f64 = 170.0;
const COLUMNS: usize = 4;
const MARGIN: f64 = 34.0;

/// Panels of (title, points), logarithmic on both axes, with a line at ratio 1.
pub fn ratios(title: &str, panels: &[(String, Vec<Point>)]) -> String {
    let rows = panels.len().div_ceil(COLUMNS).max(1);
    let (width, height) = (PANEL_WIDTH * COLUMNS as f64, PANEL_HEIGHT * rows as f64 + 40.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"22\" font-size=\"15\">{title}</text>\n"
    );
    for (i, (name, points)) in panels.iter().enumerate() {
        let x = (i % COLUMNS) as f64 * PANEL_WIDTH;
        let y = (i / COLUMNS) as f64 * PANEL_HEIGHT + 36.0;
        panel(&mut svg, x, y, name, points);
    }
    svg.push_str("</svg>\n");
    svg
}

fn panel(svg: &mut String, x: f64, y: f64, name: &str, points: &[Point]) {
    let (left, top) = (x + MARGIN, y + 20.0);
    let (width, height) = (PANEL_WIDTH - MARGIN - 14.0, PANEL_HEIGHT - 54.0);
    let bytes = |b: f64| left + (b.max(1.0).log2() / 24.0).clamp(0.0, 1.0) * width;
    // From a tenth to ten times the peer's time.
    let ratio = |r: f64| top + (0.5 - r.max(1e-9).log10() / 2.0).clamp(0.0, 1.0) * height;
    let _ = writeln!(svg, "<text x=\"{left}\" y=\"{}\">{name}</text>", top - 6.0);
    let _ = writeln!(
        svg,
        "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" fill=\"none\" stroke=\"#bbb\"/>"
    );
    for mark in [0.1, 1.0, 10.0] {
        let at = ratio(mark);
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{}\">{mark}x</text>", at + 4.0);
        let _ = writeln!(
            svg,
            "<line x1=\"{left}\" x2=\"{}\" y1=\"{at}\" y2=\"{at}\" stroke=\"#ccc\"/>",
            left + width
        );
    }
    for (size, label) in [(8.0, "8 B"), (4096.0, "4 Ki"), (1_048_576.0, "1 Mi")] {
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
            bytes(size),
            top + height + 14.0
        );
    }
    let line: Vec<String> =
        points.iter().map(|&(b, r)| format!("{:.1},{:.1}", bytes(b), ratio(r))).collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"#06c\" stroke-width=\"1.5\"/>",
        line.join(" ")
    );
    for point in line {
        if let Some((cx, cy)) = point.split_once(',') {
            let _ = writeln!(svg, "<circle cx=\"{cx}\" cy=\"{cy}\" r=\"2.2\" fill=\"#06c\"/>");
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_plot_has_a_line_per_panel() {
        let panels =
            vec![("bcast".to_owned(), vec![(8.0, 2.0), (64.0, 0.5)]), ("x".to_owned(), vec![])];
        let svg = super::ratios("t", &panels);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("<circle").count(), 2);
    }
}
