//! What people read about families is what the table says.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use memfit::{FAMILIES, Goal, StepPlanner, Tools, compare, input, objects};

fn page(name: &str) -> String {
    std::fs::read_to_string(format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn every_family_is_in_the_manual() {
    let manual = page("strategies.md");
    for family in FAMILIES {
        let means = match family.online {
            true => "online".to_owned(),
            false if family.means.names().is_empty() => "none".to_owned(),
            false => family.means.names().join(", "),
        };
        let (name, summary) = (family.name, family.summary);
        let row = format!("| [`{name}`]({}) | {summary} | {means} | `{}` |", family.page, family.default);
        assert!(manual.lines().any(|line| line == row), "docs/strategies.md lacks the row\n{row}");
        // By its own name, or by that with the family's.
        let default = format!("{}`", family.default);
        assert!(page(family.page).contains(&default), "docs/{} does not name `{default}", family.page);
    }
    let rows = manual.lines().filter(|line| line.starts_with("| [`")).count();
    assert_eq!(rows, FAMILIES.len(), "docs/strategies.md has rows that no family has");
}

#[test]
fn what_programs_read_has_all_of_them() {
    let listed = objects::strategies();
    let of = |key: &str, name: &str| -> Vec<String> {
        listed[key].as_array().unwrap().iter().map(|one| one[name].as_str().unwrap().to_owned()).collect()
    };
    let names: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
    assert_eq!(of("families", "name"), names);
    let families =
        FAMILIES.iter().flat_map(|family| family.infos().into_iter().map(|_| family.name.to_owned()));
    assert_eq!(of("strategies", "family"), families.collect::<Vec<_>>());
}

#[test]
fn whatever_makes_plans_is_compared_and_schedulers_are_there_for_hosts() {
    let graph = input::graph(
        b"graph \"one\"\n  v0 = input 8\n  v1 = output 8\n  op0 = forward f(v0) -> v1\n  result v1\n",
        &Default::default(),
    );
    let goal = Goal::new(input::device("A100-80").unwrap(), "100%".parse().unwrap());
    let rows = compare(&graph.unwrap(), &goal, &Tools::none()).unwrap();
    let hosts = StepPlanner::strategies();
    for family in FAMILIES {
        for info in family.infos() {
            let name = format!("{}:{}", family.name, info.name);
            let row = rows.iter().find(|row| row.name == name);
            assert_eq!(row.is_some(), !family.online, "{name}");
            assert!(row.is_none_or(|row| row.result.is_ok()), "{name}: {:?}", row.unwrap().result);
            let is_scheduler = !family.means.names().is_empty();
            assert_eq!(StepPlanner::new(0).by(&name).is_ok(), is_scheduler, "{name}");
            assert!(!is_scheduler || hosts.contains(&&*name) || hosts.contains(&info.name), "{name}");
        }
    }
}
