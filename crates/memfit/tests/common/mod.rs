//! What tests of `auto` plan, and on what.

use memfit::{Budget, Bytes, Device, Failure, Goal, Graph, Means, Options, Planned, Tools, plan};
use memfit_testkit::{device, link};

const HOST: Bytes = Bytes(1 << 30);

/// Without a link, and with one that is slow, so that not all that could wait elsewhere does, or fast.
pub(crate) fn machines(seed: u64) -> [Device; 2] {
    [device(), Device { link: Some(link(seed)), host_memory: HOST, ..device() }]
}

/// The plan by `strategy`, or by nobody in particular; `None` where nothing fits.
pub(crate) fn planned(
    graph: &Graph,
    device: &Device,
    budget: Budget,
    strategy: Option<&str>,
) -> Option<Planned> {
    let offload = device.link.is_some() && strategy.is_none_or(|name| !name.starts_with("recompute:"));
    let options = Options {
        strategies: strategy.iter().map(|&name| name.to_owned()).collect(),
        means: Means { offload, ..Means::ALL },
        host_budget: offload.then_some(HOST),
        ..Options::default()
    };
    match plan(graph, &Goal { options, ..Goal::new(device.clone(), budget) }, &Tools::none()) {
        Ok(planned) => {
            let summary = &planned.summary;
            assert!(summary.peak <= summary.budget && summary.time_bound <= summary.time);
            Some(planned)
        }
        Err(Failure::Infeasible(_)) => None,
        Err(failure) => panic!("{strategy:?}: {failure:?}"),
    }
}
