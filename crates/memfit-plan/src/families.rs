//! Every family of strategies: the one table that the command line, Python, the manual, `compare`, the hosts, the hammer
//! and the tests read.
//!
//! A strategy is a line in the table of its family, a family is a row here. Whoever wants one asks by name, `family:name`;
//! what a name is, and what is said of one that nobody has, is written here and nowhere else.

use memfit_engine::{alloc, evict};

use crate::order::{self, ORDERS, Order};
use crate::place::{self, PLACERS, Placer};
use crate::schedule::Scheduler;
use crate::schedule::compress::COMPRESSES;
use crate::schedule::hybrid::HYBRIDS;
use crate::schedule::offload::OFFLOADS;
use crate::schedule::recompute::RECOMPUTES;
use crate::{Info, Means};

/// Strategies that decide the same thing.
pub struct Family {
    /// What stands before `:` in the names that people use.
    pub name: &'static str,
    /// What messages call one of its strategies.
    pub noun: &'static str,
    /// What its strategies decide: one line, lower case, no full stop.
    pub summary: &'static str,
    /// By which means its strategies make a step fit: all of them for schedulers, none for others.
    pub means: Means,
    /// Whether its strategies decide while the step runs, so that a plan has none of them.
    pub online: bool,
    /// Name of the strategy that is used where none is named.
    pub default: &'static str,
    /// Schedulers that take a solver or a search of their own, so that nobody asks them who is not told to.
    pub slow: &'static [&'static str],
    /// Its page of the manual.
    pub page: &'static str,
    /// Its strategies, in the order of the manual.
    pub strategies: Table,
}

/// The strategies of a family.
#[derive(Clone, Copy)]
pub enum Table {
    /// Of those that order ops.
    Orders(&'static [&'static dyn Order]),
    /// Of those that make a step fit.
    Schedulers(&'static [&'static dyn Scheduler]),
    /// Of those that give buffers places.
    Placers(&'static [&'static dyn Placer]),
    /// Of those that choose what goes.
    Evictors(&'static [evict::Entry]),
    /// Of those that give places while the step runs.
    Allocators(&'static [alloc::Entry]),
}

/// A line of a [`Table`].
#[derive(Clone, Copy)]
pub enum Strategy {
    /// Orders ops.
    Order(&'static dyn Order),
    /// Makes a step fit.
    Scheduler(&'static dyn Scheduler),
    /// Gives buffers places.
    Placer(&'static dyn Placer),
    /// Chooses what goes.
    Evictor(&'static evict::Entry),
    /// Gives places while the step runs.
    Allocator(&'static alloc::Entry),
}

/// Every family, in the order of the manual.
pub static FAMILIES: &[Family] = &[
    Family {
        name: "order",
        noun: "order",
        summary: "in which order ops run",
        means: Means::NONE,
        online: false,
        default: "best",
        slow: &[],
        page: "ordering.md",
        strategies: Table::Orders(ORDERS),
    },
    Family {
        name: "recompute",
        noun: "recomputation",
        summary: "which ops run again, so that what they make need not be kept",
        means: Means { recompute: true, ..Means::NONE },
        online: false,
        default: "best",
        slow: &["interval", "checkmate-lp", "checkmate"],
        page: "recomputation.md",
        strategies: Table::Schedulers(RECOMPUTES),
    },
    Family {
        name: "offload",
        noun: "offloading",
        summary: "which values wait in other memory between two uses, from when until when",
        means: Means { offload: true, ..Means::NONE },
        online: false,
        default: "best",
        slow: &["autotm-static", "autotm-sync", "autotm-async"],
        page: "swapping.md",
        strategies: Table::Schedulers(OFFLOADS),
    },
    Family {
        name: "compress",
        noun: "compression",
        summary: "which values wait encoded between two uses",
        means: Means { compress: true, ..Means::NONE },
        online: false,
        default: "best",
        slow: &[],
        page: "compression.md",
        strategies: Table::Schedulers(COMPRESSES),
    },
    Family {
        name: "hybrid",
        noun: "hybrid",
        summary: "which ops run again and which values wait elsewhere or encoded, in one plan",
        means: Means::ALL,
        online: false,
        default: "best",
        slow: &[],
        page: "swapping.md",
        strategies: Table::Schedulers(HYBRIDS),
    },
    Family {
        name: "place",
        noun: "placer",
        summary: "at which address each buffer lies",
        means: Means::NONE,
        online: false,
        default: "best",
        slow: &[],
        page: "placement.md",
        strategies: Table::Placers(PLACERS),
    },
    Family {
        name: "evict",
        noun: "evictor",
        summary: "what goes when room is needed while the step runs",
        means: Means::NONE,
        online: true,
        default: "best",
        slow: &[],
        page: "engine.md",
        strategies: Table::Evictors(evict::EVICTORS),
    },
    Family {
        name: "allocate",
        noun: "allocator",
        summary: "at which address a buffer lies while the step runs",
        means: Means::NONE,
        online: true,
        default: "best-fit",
        slow: &[],
        page: "engine.md",
        strategies: Table::Allocators(alloc::ALLOCATORS),
    },
];

impl Family {
    /// The family called `name`.
    #[must_use]
    pub fn called(name: &str) -> Option<&'static Family> {
        FAMILIES.iter().find(|family| family.name == name)
    }

    /// Its strategies, in the order of the manual.
    #[must_use]
    pub fn each(&self) -> Vec<Strategy> {
        match self.strategies {
            Table::Orders(all) => all.iter().map(|&one| Strategy::Order(one)).collect(),
            Table::Schedulers(all) => all.iter().map(|&one| Strategy::Scheduler(one)).collect(),
            Table::Placers(all) => all.iter().map(|&one| Strategy::Placer(one)).collect(),
            Table::Evictors(all) => all.iter().map(Strategy::Evictor).collect(),
            Table::Allocators(all) => all.iter().map(Strategy::Allocator).collect(),
        }
    }

    /// What people are told about its strategies, in the order of the manual.
    #[must_use]
    pub fn infos(&self) -> Vec<Info> {
        self.each().into_iter().map(Strategy::info).collect()
    }

    /// Its strategy called `name`, without the family.
    ///
    /// # Errors
    ///
    /// [`Unknown`] if it has none of that name.
    pub fn strategy(&self, name: &str) -> Result<Strategy, Unknown> {
        let found = self.each().into_iter().find(|one| one.info().name == name);
        found.ok_or_else(|| Unknown::of(self.name, name))
    }
}

impl Strategy {
    /// What people are told about it.
    #[must_use]
    pub fn info(self) -> Info {
        match self {
            Strategy::Order(one) => one.info(),
            Strategy::Scheduler(one) => one.info(),
            Strategy::Placer(one) => one.info(),
            Strategy::Evictor(one) => one.info,
            Strategy::Allocator(one) => one.info,
        }
    }
}

/// The strategy that people call `family:name`, with its family.
///
/// # Errors
///
/// [`Unknown`] if no family that makes plans is called that, or it has no strategy of that name.
pub fn find(name: &str) -> Result<(&'static Family, Strategy), Unknown> {
    let (family, bare) = name.split_once(':').unwrap_or_default();
    match Family::called(family).filter(|family| !family.online) {
        Some(family) => Ok((family, family.strategy(bare)?)),
        None => {
            let hint = format!("write {}; `memfit strategies` lists them", forms());
            Err(Unknown { message: format!("`{name}` is not a strategy"), hint })
        }
    }
}

/// How the strategies of plans are named: "`order:NAME`, .. or `place:NAME`".
#[must_use]
pub fn forms() -> String {
    let families = FAMILIES.iter().filter(|family| !family.online);
    let forms: Vec<String> = families.map(|family| format!("`{}:NAME`", family.name)).collect();
    match forms.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => forms.concat(),
    }
}

/// Name of the strategy of `family` that is used where none is named; nothing if there's no such family.
#[must_use]
pub fn default_of(family: &str) -> &'static str {
    Family::called(family).map_or("", |family| family.default)
}

/// The order called `name`, without the family.
///
/// # Errors
///
/// [`Unknown`] if there is none.
pub fn order(name: &str) -> Result<&'static dyn Order, Unknown> {
    order::by_name(name).ok_or_else(|| Unknown::of("order", name))
}

/// The placer called `name`, without the family.
///
/// # Errors
///
/// [`Unknown`] if there is none.
pub fn placer(name: &str) -> Result<&'static dyn Placer, Unknown> {
    place::by_name(name).ok_or_else(|| Unknown::of("place", name))
}

/// A scheduler with its family.
#[derive(Clone, Copy)]
pub struct Named {
    /// Its family.
    pub family: &'static Family,
    /// The scheduler.
    pub scheduler: &'static dyn Scheduler,
}

impl Named {
    /// Every scheduler, in the order of the manual.
    pub fn each() -> impl Iterator<Item = Named> {
        FAMILIES.iter().flat_map(|family| {
            let all = if let Table::Schedulers(all) = family.strategies { all } else { &[] };
            all.iter().map(move |&scheduler| Named { family, scheduler })
        })
    }

    /// The one of each family that is asked where none is named.
    pub fn defaults() -> impl Iterator<Item = Named> {
        Named::each().filter(|one| one.scheduler.info().name == one.family.default)
    }

    /// Those that take little time, without those that are asked where none is named.
    pub fn quick() -> impl Iterator<Item = Named> {
        let is_quick = |one: &Named| {
            let name = one.scheduler.info().name;
            name != one.family.default && !one.family.slow.contains(&name)
        };
        Named::each().filter(is_quick)
    }

    /// The one that people call `family:name`.
    #[must_use]
    pub fn called(name: &str) -> Option<Named> {
        Named::each().find(|one| one.name() == name)
    }

    /// Its name, with that of its family.
    #[must_use]
    pub fn name(self) -> String {
        format!("{}:{}", self.family.name, self.scheduler.info().name)
    }

    /// Less for what is asked before: what only moves values is quick, and where that costs nothing, nothing else is asked;
    /// what does all takes longest.
    #[must_use]
    pub fn turn(self) -> (bool, bool) {
        (self.family.means.recompute, self.family.means.moves())
    }
}

/// A name that no strategy has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// What is wrong.
    pub message: String,
    /// The next step.
    pub hint: String,
}

impl Unknown {
    /// That of all `known` names of a `noun` none is `name`.
    pub fn new<'a>(noun: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> Unknown {
        let known: Vec<&str> = known.into_iter().collect();
        let hint = format!("known: {}", known.join(", "));
        Unknown { message: format!("there is no {noun} `{name}`"), hint }
    }

    /// That no strategy of `family` has that name.
    fn of(family: &str, name: &str) -> Unknown {
        let noun = Family::called(family).map_or(family, |family| family.noun);
        let infos = Family::called(family).map(Family::infos).unwrap_or_default();
        Unknown::new(noun, name, infos.iter().map(|info| info.name))
    }
}
