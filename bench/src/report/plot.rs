//! The plots, as SVG. They follow the reader's choice of a light or a dark page.

use std::fmt::Write as _;
use std::path::Path;

use everturn_bench_protocol::BenchResult;

use super::results::{Results, WorkloadResult};
use super::units::{times, with_unit};
use crate::driver::REFERENCE;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 170.0;
const RIGHT: f64 = 130.0;
const ROW: f64 = 26.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 40.0;

/// Colours that can be told apart on white and on black, also by people who do not see red and green.
const COLOURS: &[&str] =
    &["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8a7a00", "#999999"];

const STYLE: &str = "\
text{font:13px system-ui,sans-serif;fill:#24292f}.title{font-weight:600;font-size:15px}.small{font-size:11px;fill:#57606a}\
.grid{stroke:#d0d7de}.one{stroke:#24292f;stroke-width:1.5}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.grid{stroke:#3d444d}.one{stroke:#e6edf3}}";

/// Writes `overview.svg` and a plot for each workload with at least two systems.
pub(crate) fn write_plots(results: &Results, folder: &Path) -> BenchResult<()> {
    std::fs::create_dir_all(folder)?;
    let write = |name: &str, svg: String| {
        let path = folder.join(format!("{name}.svg"));
        std::fs::write(&path, svg).map_err(|error| format!("writing {}: {error}", path.display()))
    };
    if let Some(svg) = overview(results) {
        write("overview", svg)?;
    }
    for workload in &results.workloads {
        if let Some(svg) = of_workload(results, workload) {
            write(&workload.name, svg)?;
        }
    }
    Ok(())
}

/// A logarithmic axis between two powers of ten.
struct LogAxis {
    low: i32,
    high: i32,
}

impl LogAxis {
    fn over(values: impl Iterator<Item = f64>) -> Option<Self> {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite() && *value > 0.0) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            return None;
        }
        let (low, high) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        Some(Self { low, high: high.max(low + 1) })
    }

    fn x(&self, value: f64) -> f64 {
        let share = (value.log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn draw(&self, svg: &mut String, bottom: f64, label: impl Fn(f64) -> String) {
        for power in self.low..=self.high {
            let value = 10_f64.powi(power);
            let x = self.x(value);
            add(
                svg,
                format_args!(r#"<line class="grid" x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{bottom}"/>"#),
            );
            let y = bottom + 16.0;
            add(
                svg,
                format_args!(
                    r#"<text class="small" x="{x:.1}" y="{y}" text-anchor="middle">{}</text>"#,
                    escaped(&label(value))
                ),
            );
        }
    }
}

/// How many times as good as each peer Everturn is, in every workload.
fn overview(results: &Results) -> Option<String> {
    let peers: Vec<_> = results.peers().collect();
    let rows: Vec<&WorkloadResult> = results
        .workloads
        .iter()
        .filter(|workload| peers.iter().any(|peer| workload.advantage_over(&peer.name).is_some()))
        .collect();
    let ratios = rows.iter().flat_map(|row| peers.iter().filter_map(|peer| row.advantage_over(&peer.name)));
    let axis = LogAxis::over(ratios.chain([1.0]))?;
    let bottom = TOP + ROW * rows.len() as f64;
    let legend_rows = peers.len().div_ceil(3);
    let mut svg = head(
        bottom + BOTTOM + 18.0 * legend_rows as f64,
        "How many times as good as its peers Everturn is",
        "Medians, logarithmic scale; to the left of 1 Everturn is behind",
    );
    axis.draw(&mut svg, bottom, times);
    let one = axis.x(1.0);
    add(
        &mut svg,
        format_args!(r#"<line class="one" x1="{one:.1}" x2="{one:.1}" y1="{TOP}" y2="{bottom}"/>"#),
    );
    for (number, row) in rows.iter().enumerate() {
        let y = TOP + ROW * (number as f64 + 0.5);
        row_label(&mut svg, &row.name, y);
        for (peer, colour) in peers.iter().zip(COLOURS.iter().skip(1)) {
            let Some(ratio) = row.advantage_over(&peer.name) else { continue };
            let x = axis.x(ratio);
            let title = format!("{}: {}", peer.title, times(ratio));
            add(
                &mut svg,
                format_args!(
                    r#"<circle cx="{x:.1}" cy="{y:.1}" r="5.5" fill="{colour}"><title>{}</title></circle>"#,
                    escaped(&title)
                ),
            );
        }
    }
    for (number, (peer, colour)) in peers.iter().zip(COLOURS.iter().skip(1)).enumerate() {
        let x = LEFT + 190.0 * (number % 3) as f64;
        let y = bottom + 38.0 + 18.0 * (number / 3) as f64;
        add(&mut svg, format_args!(r#"<circle cx="{x:.1}" cy="{:.1}" r="5.5" fill="{colour}"/>"#, y - 4.0));
        add(
            &mut svg,
            format_args!(
                r#"<text class="small" x="{:.1}" y="{y:.1}">{}</text>"#,
                x + 10.0,
                escaped(&peer.title)
            ),
        );
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

/// The headline of every system in one workload, with its spread.
fn of_workload(results: &Results, workload: &WorkloadResult) -> Option<String> {
    let rows: Vec<_> = results
        .systems
        .iter()
        .filter_map(|system| Some((system, workload.headline_of(&system.name)?)))
        .collect();
    if rows.len() < 2 {
        return None;
    }
    let axis = LogAxis::over(rows.iter().flat_map(|(_, spread)| [spread.min, spread.max]))?;
    let bottom = TOP + ROW * rows.len() as f64;
    let direction = if super::units::larger_is_better(&workload.headline) { "right" } else { "left" };
    let note = format!("Median and spread of all rounds, logarithmic scale; further {direction} is better");
    let mut svg = head(bottom + BOTTOM, &workload.about, &note);
    axis.draw(&mut svg, bottom, |value| with_unit(&workload.headline, value));
    for (number, (system, spread)) in rows.iter().enumerate() {
        let y = TOP + ROW * (number as f64 + 0.5);
        row_label(&mut svg, &system.title, y);
        let colour = COLOURS.get(if system.is_peer { 1 } else { 0 }).copied().unwrap_or("#999999");
        let (min, x, max) = (axis.x(spread.min), axis.x(spread.median), axis.x(spread.max));
        add(
            &mut svg,
            format_args!(
                r#"<line x1="{min:.1}" x2="{max:.1}" y1="{y:.1}" y2="{y:.1}" stroke="{colour}" stroke-width="3" stroke-linecap="round" opacity="0.5"/>"#
            ),
        );
        add(&mut svg, format_args!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="6" fill="{colour}"/>"#));
        let stopped = workload.outcomes.get(&system.name).is_some_and(|outcome| outcome.stopped_rounds > 0);
        let value = with_unit(&workload.headline, spread.median);
        let mut label = format!("{value}{}", if stopped { "*" } else { "" });
        if let Some(ratio) = workload.advantage_over(&system.name).filter(|_| system.name != REFERENCE) {
            let _ = write!(label, " ({})", times(ratio));
        }
        let (x, y) = (WIDTH - RIGHT + 8.0, y + 4.0);
        add(&mut svg, format_args!(r#"<text class="small" x="{x}" y="{y:.1}">{}</text>"#, escaped(&label)));
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

fn head(height: f64, title: &str, note: &str) -> String {
    let (title, note) = (escaped(title), escaped(note));
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">
<style>{STYLE}</style>
<title>{title}</title>
<text class="title" x="12" y="22">{title}</text>
<text class="small" x="12" y="40">{note}</text>
"#
    )
}

fn row_label(svg: &mut String, text: &str, y: f64) {
    let (x, y) = (LEFT - 14.0, y + 4.0);
    add(svg, format_args!(r#"<text x="{x}" y="{y:.1}" text-anchor="end">{}</text>"#, escaped(text)));
}

fn add(svg: &mut String, element: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(svg, "{element}");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::sample;
    use super::*;

    #[test]
    fn an_axis_spans_whole_powers_of_ten() {
        let axis = LogAxis::over([0.4, 250.0].into_iter()).unwrap();
        assert_eq!((axis.low, axis.high), (-1, 3));
        assert_eq!(axis.x(0.1), LEFT);
        assert_eq!(axis.x(1_000.0), WIDTH - RIGHT);
        assert!(LogAxis::over([0.0].into_iter()).is_none());
        let single = LogAxis::over([10.0].into_iter()).unwrap();
        assert!(single.high > single.low);
    }

    #[test]
    fn the_overview_has_a_point_for_each_peer_and_workload() {
        let svg = overview(&sample()).unwrap();
        assert_eq!(svg.matches("<title>SLOW: ").count(), 2, "{svg}");
        assert!(svg.contains("SLOW: 0.80 x") && svg.contains("SLOW: 100 x"), "{svg}");
        assert!(svg.ends_with("</svg>\n"));
    }

    #[test]
    fn a_workload_shows_every_system_with_its_value() {
        let results = sample();
        let svg = of_workload(&results, results.workload("chain").unwrap()).unwrap();
        assert!(svg.contains("0.500 ms") && svg.contains("50.000 ms* (100 x)"), "{svg}");
        assert!(svg.contains("prefers-color-scheme:dark"));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escaped("a < b & c"), "a &lt; b &amp; c");
    }

    #[test]
    fn plots_are_files_named_for_their_workload() {
        let folder = tempfile::tempdir().unwrap();
        write_plots(&sample(), folder.path()).unwrap();
        for name in ["overview.svg", "chain.svg", "children.svg"] {
            assert!(folder.path().join(name).exists(), "{name}");
        }
    }
}
