//! Draws the ratios to the ceilings as bars.

use std::fmt::Write;

use serde_json::Value;

/// Widths of the picture, the names and the bars, and the height of a line, in pixels.
const WIDTH: f64 = 900.0;
const NAMES: f64 = 330.0;
const BARS: f64 = 440.0;
const LINE: f64 = 22.0;

/// The colours of ceilings, of references and of paths through Stoker.
const COLOURS: [(&str, &str); 3] = [("ceiling", "#8a8f98"), ("reference", "#c9ccd1"), ("path", "#2f6fb3")];

/// The bar of a line.
struct Bar<'a> {
    name: &'a str,
    role: &'a str,
    ratio: f64,
    target: Option<f64>,
}

/// Draws a report: a bar for each line that has a ratio, with a mark at the share that it should reach.
pub fn draw(report: &Value) -> String {
    let sections: Vec<(&str, Vec<Bar<'_>>)> = report["sections"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|section| (label(&section["title"]), bars(section)))
        .collect();
    let largest = sections.iter().flat_map(|(_, bars)| bars).map(|bar| bar.ratio).fold(1.0, f64::max);
    let scale = BARS / largest;
    let (mut body, mut y) = (String::new(), LINE);
    for (title, bars) in &sections {
        text_at(&mut body, 8.0, y + 15.0, "font-weight=\"bold\"", title);
        y += LINE;
        for bar in bars {
            draw_bar(&mut body, bar, y, scale);
            y += LINE;
        }
        y += LINE / 2.0;
    }
    let machine = &report["machine"];
    let about =
        format!("stoker {} on {}, {} cores", label(&machine["version"]), label(&machine["cpu"]), machine["cores"]);
    text_at(&mut body, 8.0, y + 15.0, "fill=\"#666666\"", &format!("Rates over their ceilings. {about}"));
    let height = y + 2.0 * LINE;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{body}</svg>\n"
    )
}

fn bars(section: &Value) -> Vec<Bar<'_>> {
    section["lines"].as_array().into_iter().flatten().filter_map(bar).collect()
}

/// Returns the bar of a line, or `None` if the line has no ratio.
fn bar(line: &Value) -> Option<Bar<'_>> {
    let (name, role) = (label(&line["name"]), label(&line["role"]));
    Some(Bar { name, role, ratio: line["ratio"].as_f64()?, target: line["bar"].as_f64() })
}

fn draw_bar(body: &mut String, bar: &Bar<'_>, y: f64, scale: f64) {
    let colour = COLOURS.iter().find(|(role, _)| *role == bar.role).map_or("#000000", |(_, colour)| *colour);
    let (length, baseline) = (bar.ratio * scale, y + 15.0);
    text_at(body, NAMES - 8.0, baseline, "text-anchor=\"end\"", bar.name);
    // Writing to a string never fails.
    writeln!(body, "<rect x=\"{NAMES}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"16\" fill=\"{colour}\"/>", y + 3.0)
        .ok();
    let mut end = length;
    if let Some(target) = bar.target {
        let x = NAMES + target * scale;
        end = end.max(target * scale);
        writeln!(
            body,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"#c0392b\" stroke-width=\"2\"/>",
            y + 1.0,
            y + 21.0
        )
        .ok();
    }
    text_at(body, NAMES + end + 6.0, baseline, "", &format!("{:.2}", bar.ratio));
}

fn text_at(body: &mut String, x: f64, y: f64, attributes: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    writeln!(body, "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{words}</text>").ok();
}

/// Returns a text of the report, or an empty one if there is none.
fn label(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
