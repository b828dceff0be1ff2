//! Small SVGs: panels of ratios over message sizes, and of lines over time.

use std::fmt::Write;

/// A point: bytes and a time divided by the best peer's, or seconds and a value.
pub type Point = (f64, f64);

const PANEL_WIDTH: f64 = 260.0;
const PANEL_HEIGHT: f64 = 170.0;
const COLUMNS: usize = 4;
const MARGIN: f64 = 34.0;

/// Panels of (title, points), logarithmic on both axes, with a line at ratio 1.
pub fn ratios(title: &str, panels: &[(String, Vec<Point>)]) -> String {
    pages(title, panels, |svg, x, y, name, points| panel(svg, x, y, name, points))
}

/// Panels of (title, lines), linear on both axes, from zero.
pub fn over_time(title: &str, panels: &[(String, Vec<Vec<Point>>)]) -> String {
    pages(title, panels, |svg, x, y, name, lines| time_panel(svg, x, y, name, lines))
}

fn pages<T>(
    title: &str,
    panels: &[(String, T)],
    draw: impl Fn(&mut String, f64, f64, &str, &T),
) -> String {
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
        draw(&mut svg, x, y, name, points);
    }
    svg.push_str("</svg>\n");
    svg
}

/// A panel's frame: left, top, width, height.
fn frame(svg: &mut String, x: f64, y: f64, name: &str) -> [f64; 4] {
    let (left, top) = (x + MARGIN, y + 20.0);
    let (width, height) = (PANEL_WIDTH - MARGIN - 14.0, PANEL_HEIGHT - 54.0);
    let _ = writeln!(svg, "<text x=\"{left}\" y=\"{}\">{name}</text>", top - 6.0);
    let _ = writeln!(
        svg,
        "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" fill=\"none\" stroke=\"#bbb\"/>"
    );
    [left, top, width, height]
}

const COLOURS: [&str; 4] = ["#06c", "#c60", "#093", "#909"];

fn time_panel(svg: &mut String, x: f64, y: f64, name: &str, lines: &[Vec<Point>]) {
    let [left, top, width, height] = frame(svg, x, y, name);
    let most = |of: fn(&Point) -> f64| lines.iter().flatten().map(of).fold(1.0, f64::max);
    let (last, largest) = (most(|point| point.0), 1.1 * most(|point| point.1));
    for (value, at) in [(0.0, top + height), (largest, top + 4.0)] {
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{at}\">{value:.0}</text>");
    }
    let (right, below) = (left + width, top + height + 14.0);
    let _ =
        writeln!(svg, "<text x=\"{right}\" y=\"{below}\" text-anchor=\"end\">{last:.0} s</text>");
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let points = line.iter().map(|&(seconds, value)| {
            let (x, y) = (left + seconds / last * width, top + (1.0 - value / largest) * height);
            format!("{x:.1},{y:.1}")
        });
        let points = points.collect::<Vec<_>>().join(" ");
        let _ = writeln!(svg, "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\"/>");
    }
}

fn panel(svg: &mut String, x: f64, y: f64, name: &str, points: &[Point]) {
    let [left, top, width, height] = frame(svg, x, y, name);
    let bytes = |b: f64| left + (b.max(1.0).log2() / 24.0).clamp(0.0, 1.0) * width;
    // From a tenth to ten times the peer's time.
    let ratio = |r: f64| top + (0.5 - r.max(1e-9).log10() / 2.0).clamp(0.0, 1.0) * height;
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
    fn each_rank_has_a_line() {
        let panels = vec![("x".to_owned(), vec![vec![(0.0, 3.0), (9.0, 4.0)], vec![(1.0, 2.0)]])];
        let svg = super::over_time("t", &panels);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains(">9 s<"), "{svg}");
    }

    #[test]
    fn a_plot_has_a_line_per_panel() {
        let panels =
            vec![("bcast".to_owned(), vec![(8.0, 2.0), (64.0, 0.5)]), ("x".to_owned(), vec![])];
        let svg = super::ratios("t", &panels);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("<circle").count(), 2);
    }
}
