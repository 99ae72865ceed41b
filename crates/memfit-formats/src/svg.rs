//! A line plot as an SVG file that needs nothing else: no fonts, no scripts, no network.

use std::fmt::Write as _;

/// A curve with its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Shown in the legend.
    pub name: String,
    /// Points, in the order they are joined.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
/// Left, top, right, bottom.
const MARGIN: (f64, f64, f64, f64) = (72.0, 40.0, 24.0, 56.0);
/// Told apart by people who see colours differently (Okabe and Ito, 2008).
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// Plots `series`. Points that are not finite are left out.
#[must_use]
pub fn line_plot(title: &str, x_label: &str, y_label: &str, series: &[Series]) -> String {
    let finite = |&&(x, y): &&(f64, f64)| x.is_finite() && y.is_finite();
    let points = || series.iter().flat_map(|series| series.points.iter()).filter(finite);
    let (x_axis, y_axis) = (Axis::over(points().map(|p| p.0)), Axis::over(points().map(|p| p.1)));
    let (left, top, right, bottom) = MARGIN;
    let at_x = |x: f64| left + x_axis.share(x) * (WIDTH - left - right);
    let at_y = |y: f64| HEIGHT - bottom - y_axis.share(y) * (HEIGHT - top - bottom);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{left}\" y=\"24\" font-size=\"16\">{}</text>\n",
        escape(title)
    );
    // Writing to a string can't fail, here and below.
    for tick in x_axis.ticks() {
        let (x, end) = (at_x(tick), HEIGHT - bottom);
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {top} V{end}\" stroke=\"#ddd\"/><text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            end + 18.0,
            number(tick)
        );
    }
    for tick in y_axis.ticks() {
        let y = at_y(tick);
        let _ = writeln!(
            svg,
            "<path d=\"M{left} {y:.1} H{}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - right,
            left - 8.0,
            y + 4.0,
            number(tick)
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n\
         <text transform=\"translate(18 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        left + (WIDTH - left - right) / 2.0,
        HEIGHT - 14.0,
        escape(x_label),
        top + (HEIGHT - top - bottom) / 2.0,
        escape(y_label)
    );
    for (index, series) in series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let mut path = String::new();
        for (x, y) in series.points.iter().filter(finite) {
            let _ =
                write!(path, "{}{:.1} {:.1}", if path.is_empty() { "M" } else { "L" }, at_x(*x), at_y(*y));
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
                at_x(*x),
                at_y(*y)
            );
        }
        let y = top + 16.0 * (index as f64 + 1.0);
        let _ = writeln!(
            svg,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <text x=\"{}\" y=\"{y}\" text-anchor=\"end\" fill=\"{colour}\">{}</text>",
            WIDTH - right - 6.0,
            escape(&series.name)
        );
    }
    svg + "</svg>\n"
}

/// From the lowest to the highest number, in round steps.
struct Axis {
    from: f64,
    step: f64,
    steps: u32,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>) -> Axis {
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
        let (low, high) = if low > high { (0.0, 1.0) } else { (low, high) };
        let span = if high > low { high - low } else { high.abs().max(1.0) };
        let rough = span / 6.0;
        let power = 10f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|f| f * power).find(|s| *s >= rough).unwrap_or(rough);
        let from = (low / step).floor() * step;
        let steps = (1..=24).find(|&n| from + step * f64::from(n) >= high).unwrap_or(24);
        Axis { from, step, steps }
    }

    fn share(&self, value: f64) -> f64 {
        (value - self.from) / (self.step * f64::from(self.steps))
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        (0..=self.steps).map(|n| self.from + self.step * f64::from(n))
    }
}

/// Without trailing zeros: `2.5`, `40`.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escape(text: &str) -> String {
    let plain: String = text.chars().filter(|c| !c.is_control()).collect();
    plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_holds_its_points_and_escapes_its_names() {
        let series =
            Series { name: "a<b>&\"".into(), points: vec![(40.0, 12.5), (100.0, 0.0), (f64::NAN, 1.0)] };
        let svg = line_plot("t", "x", "y", &[series]);
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains("a&lt;b&gt;&amp;&quot;") && svg.ends_with("</svg>\n"));
        assert!(line_plot("nothing", "x", "y", &[]).contains("nothing"));
    }

    #[test]
    fn axes_are_round_and_hold_their_values() {
        for (low, high) in [(0.0, 35.0), (37.2, 100.0), (5.0, 5.0), (0.0, 0.0), (-3.0, 1e9)] {
            let axis = Axis::over([low, high].into_iter());
            assert!(axis.share(low) >= -1e-9 && axis.share(high) <= 1.0 + 1e-9, "{low} {high}");
        }
    }
}
