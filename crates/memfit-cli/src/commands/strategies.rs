//! `memfit strategies`: what memfit can do, and where each idea comes from.

use memfit::formats::device_toml;
use memfit::{FAMILIES, objects};

use crate::error::Error;
use crate::output::{Output, table};

pub(super) fn run(output: &Output) -> Result<(), Error> {
    if output.json {
        return output.object(&objects::strategies());
    }
    let mut text = String::new();
    for family in FAMILIES {
        let rows = family.infos().into_iter().map(|info| {
            let default = if info.name == family.default { " (default)" } else { "" };
            vec![
                format!("{}:{}{default}", family.name, info.name),
                info.summary.to_owned(),
                format!("{} ({})", info.source, info.year),
            ]
        });
        text += &format!("{}: {}\n", family.name, family.summary);
        text += &table(&["strategy", "what it does", "source"], &[1, 2], rows.collect());
        text.push('\n');
    }
    let rows = device_toml::presets().iter().map(|preset| {
        let device = &preset.device;
        vec![device.name.clone(), device.memory.to_string(), format!("{:.0} GB/s", device.bandwidth / 1e9)]
    });
    text += &table(&["device", "memory", "bandwidth"], &[], rows.collect());
    output.print(&text)
}
