//! What has been measured: tables of figures as files, and the pages that show them.
//!
//! `bench/definitions/NAME.toml` says what is measured, by which command, and which page shows it. `bench/record/DATE-NAME.json` has what came
//! out: the newest one is shown, below the line `<!-- record: NAME -->`. No figure is written into such a table by hand.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::run;

const DEFINITIONS: &str = "bench/definitions";
const RECORDS: &str = "bench/record";

/// What is measured.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Definition {
    /// In one line.
    #[allow(dead_code, reason = "for whoever reads the file; that it is there is checked")]
    what: String,
    /// What makes the record, or how it was made by hand.
    command: String,
    /// The page with the table.
    page: String,
    /// Those columns of the record that the page shows; all without it.
    #[serde(default)]
    columns: Option<Vec<String>>,
    /// `l` or `r` for each column that is shown; all to the left without it.
    #[serde(default)]
    align: Option<String>,
}

/// What came out.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    pub(crate) command: String,
    /// Of the day when it was made, `YYYY-MM-DD`.
    pub(crate) date: String,
    /// What figures of time depend on, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) machine: Option<String>,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// Writes each table of `text` as a record: the first as `name`, the others as `name-2` and so on.
pub(crate) fn keep(name: &str, command: &str, text: &str) -> Result<()> {
    let date = run::output("date", ["--utc", "+%Y-%m-%d"])?.trim().to_owned();
    std::fs::create_dir_all(RECORDS)?;
    for (at, (columns, rows)) in tables(text).into_iter().enumerate() {
        let name = if at == 0 { name.to_owned() } else { format!("{name}-{}", at + 1) };
        let path = format!("{RECORDS}/{date}-{name}.json");
        let record =
            Record { command: command.into(), date: date.clone(), machine: Some(machine()), columns, rows };
        std::fs::write(&path, record.json()?).with_context(|| format!("can't write `{path}`"))?;
        run::say(&format!("recorded in {path}; `cargo xtask docs` shows it where a page does"));
    }
    Ok(())
}

/// Has every page show the newest record of each of its tables. If `check`, nothing is written, and what would be is an error.
pub(crate) fn show(check: bool) -> Result<()> {
    let mut pages: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    let records = newest()?;
    for (name, definition) in definitions()? {
        let record = records.get(&name).with_context(|| format!("`{name}` is defined and has no record"))?;
        let made_so = record.command == definition.command;
        ensure!(made_so, "the record of `{name}` was made by `{}`, not as defined", record.command);
        let (text, shown) = match pages.entry(definition.page.clone()) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let page = std::fs::read_to_string(&definition.page);
                entry.insert((page.with_context(|| format!("can't read `{}`", definition.page))?, Vec::new()))
            }
        };
        let chosen = definition.columns.as_deref().map(|columns| record.only(columns)).transpose();
        let chosen = chosen.with_context(|| format!("can't show the record of `{name}`"))?;
        let table = chosen.as_ref().unwrap_or(record).markdown(definition.align.as_deref());
        *text = with_table(text, &name, &table)
            .with_context(|| format!("`{}` has no line `{}`", definition.page, marker(&name)))?;
        shown.push(marker(&name));
    }
    for (page, (text, shown)) in pages {
        let unknown =
            text.lines().find(|line| line.starts_with("<!-- record:") && !shown.iter().any(|at| at == line));
        if let Some(line) = unknown {
            bail!("`{page}` has `{line}`, which no file of `{DEFINITIONS}` defines");
        }
        if std::fs::read_to_string(&page)? == text {
            continue;
        }
        ensure!(!check, "`{page}` has other figures than `{RECORDS}`: `cargo xtask docs` mends it");
        std::fs::write(&page, text).with_context(|| format!("can't write `{page}`"))?;
        run::say(&format!("wrote {page}"));
    }
    Ok(())
}

fn definitions() -> Result<BTreeMap<String, Definition>> {
    let mut found = BTreeMap::new();
    for (name, path) in files(Path::new(DEFINITIONS), ".toml")? {
        let text = std::fs::read_to_string(&path)?;
        found.insert(name, toml::from_str(&text).with_context(|| format!("can't read `{path}`"))?);
    }
    Ok(found)
}

/// The record of each name with the last date. Files of other kinds lie there too.
fn newest() -> Result<BTreeMap<String, Record>> {
    let mut found = BTreeMap::new();
    for (stem, path) in files(Path::new(RECORDS), ".json")? {
        let Some((date, name)) = stem.split_at_checked(10) else { continue };
        let text = std::fs::read_to_string(&path)?;
        let value: serde_json::Value =
            serde_json::from_str(&text).with_context(|| format!("can't read `{path}`"))?;
        if value.get("columns").is_none() {
            continue;
        }
        let record: Record = serde_json::from_value(value).with_context(|| format!("can't read `{path}`"))?;
        ensure!(record.date == date, "`{path}` is of another day: `{}`", record.date);
        let width = record.columns.len();
        ensure!(
            record.rows.iter().all(|row| row.len() == width),
            "`{path}` has rows that are no {width} cells"
        );
        // Names of files come in their order, so with rising dates.
        found.insert(name.trim_start_matches('-').to_owned(), record);
    }
    Ok(found)
}

/// Names, without `end`, and paths.
fn files(folder: &Path, end: &str) -> Result<BTreeMap<String, String>> {
    let listed = std::fs::read_dir(folder).with_context(|| format!("can't list `{}`", folder.display()))?;
    let mut found = BTreeMap::new();
    for entry in listed {
        let path = entry?.path().to_string_lossy().into_owned();
        let name = Path::new(&path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(name) = name.strip_suffix(end) {
            found.insert(name.to_owned(), path);
        }
    }
    Ok(found)
}

fn marker(name: &str) -> String {
    format!("<!-- record: {name} -->")
}

/// `page` with `table` in the place of the lines behind the marker that begin with a bar. None without a marker.
fn with_table(page: &str, name: &str, table: &str) -> Option<String> {
    let marker = marker(name);
    let mut lines = page.lines();
    let mut text = String::with_capacity(page.len() + table.len());
    loop {
        let line = lines.next()?;
        text += &format!("{line}\n");
        if line == marker {
            break;
        }
    }
    let mut rest =
        lines.skip_while(|line| line.is_empty()).skip_while(|line| line.starts_with('|')).peekable();
    text += &format!("\n{table}");
    if rest.peek().is_some_and(|line| !line.is_empty()) {
        text.push('\n');
    }
    rest.for_each(|line| text += &format!("{line}\n"));
    Some(text)
}

/// The Markdown tables of a text: headings and rows.
fn tables(text: &str) -> Vec<(Vec<String>, Vec<Vec<String>>)> {
    let mut found: Vec<(Vec<String>, Vec<Vec<String>>)> = Vec::new();
    let mut before = "";
    for line in text.lines() {
        let is_rule = line.starts_with('|') && line.chars().all(|at| "|-: ".contains(at));
        if is_rule {
            found.push((cells(before), Vec::new()));
        } else if let Some((_, rows)) =
            found.last_mut().filter(|_| line.starts_with('|') && before.starts_with('|'))
        {
            rows.push(cells(line));
        }
        before = line;
    }
    found
}

/// A bar behind a backslash is part of its cell.
fn cells(line: &str) -> Vec<String> {
    let inside = line.trim().trim_start_matches('|').trim_end_matches('|');
    let apart = inside.replace("\\|", "\u{0}");
    apart.split('|').map(|cell| cell.trim().replace('\u{0}', "\\|")).collect()
}

impl Record {
    /// With these columns alone, in this order.
    fn only(&self, columns: &[String]) -> Result<Record> {
        let at = |name: &String| {
            self.columns
                .iter()
                .position(|column| column == name)
                .with_context(|| format!("it has no column `{name}`"))
        };
        let places: Vec<usize> = columns.iter().map(at).collect::<Result<_>>()?;
        let rows = self.rows.iter().map(|row| places.iter().map(|&at| row[at].clone()).collect());
        let (command, date, machine) = (self.command.clone(), self.date.clone(), self.machine.clone());
        Ok(Record { command, date, machine, columns: columns.to_vec(), rows: rows.collect() })
    }

    /// A row a line, so that a change is a line.
    fn json(&self) -> Result<String> {
        let mut text = format!("{{\n  \"command\": {},\n", serde_json::to_string(&self.command)?);
        text += &format!("  \"date\": {},\n", serde_json::to_string(&self.date)?);
        if let Some(machine) = &self.machine {
            text += &format!("  \"machine\": {},\n", serde_json::to_string(machine)?);
        }
        text += &format!("  \"columns\": {},\n  \"rows\": [\n", serde_json::to_string(&self.columns)?);
        let rows: Vec<String> = self.rows.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        Ok(text + "    " + &rows.join(",\n    ") + "\n  ]\n}\n")
    }

    fn markdown(&self, align: Option<&str>) -> String {
        let line = |cells: &[String]| {
            let inside: Vec<String> = cells
                .iter()
                .map(|cell| if cell.is_empty() { " ".into() } else { format!(" {cell} ") })
                .collect();
            format!("|{}|\n", inside.join("|"))
        };
        let sides = align.unwrap_or("").chars().chain(std::iter::repeat('l'));
        let rule = sides.take(self.columns.len()).map(|side| if side == 'r' { "--:|" } else { "---|" });
        let rows = self.rows.iter().map(|row| line(row));
        line(&self.columns) + "|" + &rule.collect::<String>() + "\n" + &rows.collect::<String>()
    }
}

/// What figures of time depend on.
pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map(|rest| rest.trim_start_matches([' ', '\t', ':']));
    format!("{cores} cores, {}", model.unwrap_or("unknown processor"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    fn record() -> Record {
        let rows = vec![vec!["a".to_owned(), "1 \\| 2".to_owned()], vec![String::new(), "3".to_owned()]];
        let columns = ["x", "y"].map(str::to_owned).to_vec();
        Record { command: "c \"d\"".into(), date: "2026-01-02".into(), machine: None, columns, rows }
    }

    #[test]
    fn a_record_is_shown_and_read_back() {
        let table = record().markdown(Some("lr"));
        assert_eq!(table, "| x | y |\n|---|--:|\n| a | 1 \\| 2 |\n| | 3 |\n");
        assert_eq!(tables(&format!("Text\n\n{table}\nMore | text\n")), [(record().columns, record().rows)]);
        assert_eq!(serde_json::from_str::<Record>(&record().json().unwrap()).unwrap(), record());
        let only = record().only(&["y".to_owned()]).unwrap();
        assert_eq!(only.markdown(None), "| y |\n|---|\n| 1 \\| 2 |\n| 3 |\n");
        assert!(record().only(&["z".to_owned()]).is_err());
    }

    #[test]
    fn a_table_takes_the_place_of_the_one_before() {
        let page = "# A\n<!-- record: b -->\n\n| old |\n|---|\n| 1 |\n\nText\n";
        let new = "| new |\n|---|\n| 2 |\n";
        let shown = "# A\n<!-- record: b -->\n\n| new |\n|---|\n| 2 |\n\nText\n";
        assert_eq!(with_table(page, "b", new).as_deref(), Some(shown));
        assert_eq!(with_table(shown, "b", new).as_deref(), Some(shown));
        assert_eq!(
            with_table("<!-- record: b -->\nText\n", "b", new).unwrap(),
            format!("<!-- record: b -->\n\n{new}\nText\n")
        );
        assert_eq!(with_table(page, "c", new), None);
    }
}
