//! Lines over time, as a picture.

use std::fmt::Write as _;

/// Of one chart, with room for the names at its right.
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 300.0;
const NAMES: f64 = 190.0;
const MARGIN: f64 = 50.0;

/// Steps of the scales.
const STEPS: u32 = 5;

const COLOURS: [&str; 9] = [
    "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f",
    "#17becf",
];

/// Figures over minutes.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// Lines on one scale.
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) lines: Vec<Line>,
}

/// All charts, one below the other.
pub(super) fn svg(charts: &[Chart]) -> String {
    let (width, each) = (WIDTH + NAMES + 2.0 * MARGIN, HEIGHT + 2.0 * MARGIN);
    let height = charts.iter().fold(0.0, |height, _| height + each);
    let mut text = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>"#
    );
    let mut top = MARGIN;
    for chart in charts {
        write!(text, r#"<g transform="translate({MARGIN},{top})">"#).unwrap();
        chart.draw(&mut text);
        text += "</g>";
        top += each;
    }
    text + "</svg>\n"
}

impl Chart {
    fn draw(&self, text: &mut String) {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let right = points().fold(0.1, |max: f64, (x, _)| max.max(*x));
        let top = round_up(points().fold(1.0, |max: f64, (_, y)| max.max(*y)));
        write!(
            text,
            r#"<text y="-12" font-size="14">{}</text>"#,
            self.title
        )
        .unwrap();
        for step in 0..=STEPS {
            let part = f64::from(step) / f64::from(STEPS);
            let (x, y) = (WIDTH * part, HEIGHT * (1.0 - part));
            write!(
                text,
                r##"<path d="M0,{y}H{WIDTH}" stroke="#ddd"/><text x="-6" y="{}" text-anchor="end">{:.0}</text><text x="{x}" y="{}" text-anchor="middle">{:.1}</text>"##,
                y + 4.0,
                top * part,
                HEIGHT + 18.0,
                right * part
            )
            .unwrap();
        }
        let named = self.lines.iter().zip(COLOURS.iter().cycle());
        let mut name_at = 10.0;
        for (line, colour) in named {
            let points = line.points.iter();
            let points = points.map(|(x, y)| {
                let (x, y) = (x / right * WIDTH, HEIGHT * (1.0 - y / top));
                format!("{x:.1},{y:.1}")
            });
            let points = points.collect::<Vec<_>>().join(" ");
            write!(
                text,
                r#"<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/><text x="{}" y="{name_at}" fill="{colour}">{}</text>"#,
                WIDTH + 10.0,
                line.name
            )
            .unwrap();
            name_at += 18.0;
        }
    }
}

/// To a number whose steps are easy to read.
fn round_up(value: f64) -> f64 {
    let unit = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].into_iter();
    let mut fits = steps.map(|it| it * unit).filter(|it| *it >= value);
    fits.next().unwrap_or(value)
}
