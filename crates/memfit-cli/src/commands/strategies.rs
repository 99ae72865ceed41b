//! `memfit strategies`: what memfit can do, and where each idea comes from.

use memfit::engine::alloc::ALLOCATORS;
use memfit::engine::evict::EVICTORS;
use memfit::formats::device_toml;
use memfit::strategies::Info;
use memfit::strategies::order::ORDERS;
use memfit::strategies::place::PLACERS;
use memfit::strategies::recompute::RECOMPUTES;
use serde_json::{Value, json};

use crate::error::Error;
use crate::output::{Output, table};

pub(super) fn run(output: &Output) -> Result<(), Error> {
    let online = |info: &memfit::engine::evict::Info| Info {
        name: info.name,
        summary: info.summary,
        source: info.source,
        year: info.year,
    };
    let families: [(&str, Vec<Info>); 5] = [
        ("order", ORDERS.iter().map(|order| order.info()).collect()),
        ("recompute", RECOMPUTES.iter().map(|strategy| strategy.info()).collect()),
        ("place", PLACERS.iter().map(|placer| placer.info()).collect()),
        ("evict", EVICTORS.iter().map(|entry| online(&entry.info)).collect()),
        ("allocate", ALLOCATORS.iter().map(|entry| online(&entry.info)).collect()),
    ];
    if output.json {
        let rows = families.iter().flat_map(|(family, infos)| {
            infos.iter().map(move |info| {
                json!({
                    "family": family,
                    "name": info.name,
                    "summary": info.summary,
                    "source": info.source,
                    "year": info.year,
                })
            })
        });
        let devices: Vec<Value> = device_toml::presets()
            .iter()
            .map(|preset| json!({"name": preset.device.name, "memory_bytes": preset.device.memory.0, "source": preset.source}))
            .collect();
        return output.object(&json!({
            "schema": "memfit-strategies/1",
            "strategies": rows.collect::<Vec<_>>(),
            "devices": devices,
        }));
    }
    let mut text = String::new();
    for (family, infos) in families {
        let rows = infos.iter().map(|info| {
            vec![
                format!("{family}:{}", info.name),
                info.summary.to_owned(),
                format!("{} ({})", info.source, info.year),
            ]
        });
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
