//! The table of families: names are unique, defaults exist, and what is asked by name is found.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use memfit_plan::families::{Named, Strategy, find, forms};
use memfit_plan::{FAMILIES, Family, Means};

#[test]
fn every_name_is_there_once_and_says_where_it_comes_from() {
    let mut names = BTreeSet::new();
    for family in FAMILIES {
        assert!(std::ptr::eq(Family::called(family.name).unwrap(), family), "{} is there twice", family.name);
        assert!(family.strategy(family.default).is_ok(), "{}: no `{}`", family.name, family.default);
        for info in family.infos() {
            let name = format!("{}:{}", family.name, info.name);
            let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-+".contains(c);
            assert!(info.name.chars().all(letters), "{name}");
            assert!(!info.summary.is_empty() && !info.summary.ends_with('.'), "{name}");
            assert!(!info.source.is_empty() && (1960..2100).contains(&info.year), "{name}");
            assert!(names.insert(name.clone()), "{name} is there twice");
        }
    }
    assert!(names.len() > 60);
}

#[test]
fn names_lead_to_strategies() {
    for family in FAMILIES {
        for info in family.infos() {
            let name = format!("{}:{}", family.name, info.name);
            let found = find(&name);
            assert_eq!(found.is_ok(), !family.online, "{name}");
            let is_scheduler = matches!(found, Ok((_, Strategy::Scheduler(_))));
            assert_eq!(Named::called(&name).is_some(), is_scheduler, "{name}");
            assert_eq!(is_scheduler, family.means != Means::NONE, "{name}");
        }
    }
    let said = |name: &str| find(name).err().unwrap();
    assert_eq!(said("order:much").message, "there is no order `much`");
    assert!(said("order:much").hint.starts_with("known: given, "));
    assert_eq!(said("offload:much").message, "there is no offloading `much`");
    for name in ["much", "sort:best", "evict:dtr", "", ":"] {
        assert_eq!(said(name).message, format!("`{name}` is not a strategy"));
        assert!(said(name).hint.contains(&forms()));
    }
    assert!(forms().starts_with("`order:NAME`, ") && forms().ends_with(" or `place:NAME`"));
}

#[test]
fn what_is_quick_is_asked_first() {
    let mut defaults: Vec<Named> = Named::defaults().collect();
    defaults.sort_by_key(|one| one.turn());
    let names: Vec<String> = defaults.into_iter().map(Named::name).collect();
    assert_eq!(names, ["offload:best", "compress:best", "recompute:best", "hybrid:best"]);
}
