//! The report as one page that needs nothing else: no network, no server, no build step.
//!
//! What comes from a file goes into the page as one block of base64 and nowhere else, and the page's scripts write it into the
//! document as text. The page's own policy forbids every request, and every script but its own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::columns::{Detail, object};
use super::model::Report;

/// The most bytes of a page: what does not fit leaves out the smallest buffers and the shortest slices, and says so.
pub const MAX_PAGE: usize = 2_000_000;

const PAGE: &str = include_str!("assets/page.html");
const PARTS: &[(&str, &str)] = &[
    ("{{uplot.css}}", include_str!("assets/uplot/uplot.min.css")),
    ("{{page.css}}", include_str!("assets/page.css")),
    ("{{uplot.js}}", include_str!("assets/uplot/uplot.min.js")),
    ("{{format.js}}", include_str!("assets/format.js")),
    ("{{data.js}}", include_str!("assets/data.js")),
    ("{{raster.js}}", include_str!("assets/raster.js")),
    ("{{memory.js}}", include_str!("assets/memory.js")),
    ("{{addresses.js}}", include_str!("assets/addresses.js")),
    ("{{lanes.js}}", include_str!("assets/lanes.js")),
    ("{{tables.js}}", include_str!("assets/tables.js")),
    ("{{main.js}}", include_str!("assets/main.js")),
];
const DATA: &str = "{{data}}";

/// The page of `report`, at most [`MAX_PAGE`] bytes.
#[must_use]
pub fn html(report: &Report) -> String {
    let mut page = PAGE.to_owned();
    for (mark, text) in PARTS {
        page = page.replace(mark, text);
    }
    let room = MAX_PAGE.saturating_sub(page.len());
    let mut detail = Detail { stays: usize::MAX, slices: usize::MAX };
    let mut data = packed(report, detail);
    while data.len() > room && (detail.stays > 0 || detail.slices > 0) {
        // A tenth below what would do if all were as large.
        let share = room as f64 / data.len() as f64 * 0.9;
        let less = |count: usize, all: usize| part(count.min(all), share);
        detail = Detail {
            stays: less(detail.stays, report.stays.len()),
            slices: less(detail.slices, report.slices.len()),
        };
        data = packed(report, detail);
    }
    page.replace(DATA, &data)
}

fn part(count: usize, share: f64) -> usize {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    let part = (count as f64 * share) as usize;
    part.min(count.saturating_sub(1))
}

/// The data, deflated, in letters and digits.
fn packed(report: &Report, detail: Detail) -> String {
    let json = object(report, detail).to_string();
    STANDARD.encode(miniz_oxide::deflate::compress_to_vec_zlib(json.as_bytes(), 8))
}
