//! `cargo run --release -- vit`, or another name of [`burn_outside::examples::ALL`]; all of them without one.

use burn_outside::examples::ALL;

fn main() -> Result<(), memfit_burn::Fault> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = names.iter().find(|name| ALL.iter().all(|(known, _)| known != name)) {
        eprintln!("no example is called `{unknown}`: there are {}", ALL.map(|(name, _)| name).join(", "));
        std::process::exit(2);
    }
    let chosen = ALL.iter().filter(|(name, _)| names.is_empty() || names.iter().any(|chosen| chosen == name));
    chosen.into_iter().try_for_each(|(_, main)| main())
}
