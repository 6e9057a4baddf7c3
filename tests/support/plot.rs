//! Draws lines on scales as an SVG picture.

#![allow(dead_code, reason = "not every picture uses all of it")]

use std::fmt::Write as _;

/// The size of one chart, with room for the names at its right.
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 300.0;
const NAMES: f64 = 190.0;
const MARGIN: f64 = 60.0;

/// Steps of a linear scale.
const STEPS: u32 = 5;
/// A logarithmic scale of more powers of ten has marks only at these.
const POWERS_MAX: f64 = 2.5;

const COLOURS: [&str; 9] = [
    "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f",
    "#17becf",
];

pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// How figures are spread over an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From 0.
    Linear,
    /// Equal factors have equal distances. Figures are above 0.
    Logarithmic,
}

/// Lines on one pair of scales.
pub(crate) struct Chart {
    pub(crate) title: String,
    /// Across, and up.
    pub(crate) scales: [Scale; 2],
    pub(crate) lines: Vec<Line>,
}

/// A scale with its ends.
#[derive(Clone, Copy)]
struct Axis {
    scale: Scale,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(scale: Scale, figures: impl Iterator<Item = f64> + Clone) -> Self {
        let lowest = figures.clone().fold(f64::INFINITY, f64::min);
        let highest = figures.fold(0.1, f64::max);
        let (from, to) = match scale {
            Scale::Linear => (0.0, easy(highest, true)),
            Scale::Logarithmic => {
                let from = easy(lowest.min(highest) * 1.0001, false);
                (from.log10(), easy(highest, true).max(from * 2.0).log10())
            }
        };
        Self { scale, from, to }
    }

    /// The position of a figure on the axis, 0 to 1.
    fn part(&self, figure: f64) -> f64 {
        let figure = match self.scale {
            Scale::Linear => figure,
            Scale::Logarithmic => figure.log10(),
        };
        (figure - self.from) / (self.to - self.from)
    }

    /// The marks of the axis: positions and labels.
    fn marks(&self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Linear => {
                let parts = (0..=STEPS).map(|step| f64::from(step) / f64::from(STEPS));
                let figure = |part: f64| part * self.to;
                let digits = usize::from(self.to < f64::from(2 * STEPS));
                parts
                    .map(|part| (part, format!("{:.digits$}", figure(part))))
                    .collect()
            }
            Scale::Logarithmic => {
                let is_long = self.to - self.from > POWERS_MAX;
                let steps: &[f64] = if is_long { &[1.0] } else { &[1.0, 2.0, 5.0] };
                let powers = std::iter::successors(Some(self.from.floor()), |it| Some(it + 1.0));
                let powers = powers.take_while(|power| *power <= self.to);
                let figures = powers.flat_map(|power| {
                    let unit = 10_f64.powf(power);
                    steps.iter().map(move |step| step * unit)
                });
                let marks = figures.map(|figure| (self.part(figure), format!("{figure}")));
                // A rounding error in the logarithm must not cost a mark.
                marks
                    .filter(|(part, _)| (-0.001..1.001).contains(part))
                    .collect()
            }
        }
    }
}

/// All charts, one below the other.
pub(crate) fn svg(charts: &[Chart]) -> String {
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
        let points = self.lines.iter().flat_map(|line| &line.points);
        let across = Axis::new(self.scales[0], points.clone().map(|(x, _)| *x));
        let up = Axis::new(self.scales[1], points.map(|(_, y)| *y));
        write!(
            text,
            r#"<text y="-12" font-size="14">{}</text>"#,
            self.title
        )
        .unwrap();
        for (part, figure) in up.marks() {
            let y = HEIGHT * (1.0 - part);
            write!(
                text,
                r##"<path d="M0,{y}H{WIDTH}" stroke="#ddd"/><text x="-6" y="{}" text-anchor="end">{figure}</text>"##,
                y + 4.0
            )
            .unwrap();
        }
        for (part, figure) in across.marks() {
            write!(
                text,
                r#"<text x="{}" y="{}" text-anchor="middle">{figure}</text>"#,
                WIDTH * part,
                HEIGHT + 18.0
            )
            .unwrap();
        }
        let named = self.lines.iter().zip(COLOURS.iter().cycle());
        let mut name_at = 10.0;
        for (line, colour) in named {
            let points = line.points.iter();
            let points = points.map(|(x, y)| {
                let (x, y) = (across.part(*x) * WIDTH, HEIGHT * (1.0 - up.part(*y)));
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

/// The next number above or below that is easy to read.
fn easy(value: f64, above: bool) -> f64 {
    let unit = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|it| it * unit);
    let next = match above {
        true => steps.into_iter().find(|it| *it >= value),
        false => steps.into_iter().rfind(|it| *it <= value),
    };
    next.unwrap_or(value)
}
