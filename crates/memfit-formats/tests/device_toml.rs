//! Presets of devices, and device files of users.

mod common;

use common::{survives_every_flip_and_cut, survives_random_damage};
use memfit_formats::FormatError;
use memfit_formats::device_toml::{self, preset, presets};
use memfit_ir::{Bytes, Codec, Device, Dtype, Link, Nanos, Store};

const GOOD: &str = r#"
name = "mine"
memory = "24GiB"
align = 512
flops = { f32 = "35.6TFLOP/s", bf16 = 71e12, f64 = 600_000_000_000 }
bandwidth = "936 GB/s"
launch = 5000
copy = "600GB/s"
codecs = { zvc = { encode = "300GB/s", decode = 350e9 }, cast-f16 = { encode = 9e11, decode = 8e11 } }
link = { out = "25GB/s", in = "23.5GiB/s", duplex = 40e9, latency = "10.5 µs" }
host_memory = 64000000000
disk = { capacity = "1TB", link = { out = "3GB/s", in = "7GB/s", latency = "80us", asynchronous = false } }
"#;

fn read(bytes: &[u8]) -> Result<Device, FormatError> {
    let text = std::str::from_utf8(bytes).map_err(|error| FormatError::new("", error.to_string()))?;
    device_toml::read(text)
}

#[test]
fn a_device_reads_with_its_units() {
    let device = device_toml::read(GOOD).unwrap();
    let expected = Device {
        name: "mine".into(),
        memory: Bytes(24 << 30),
        align: Bytes(512),
        flops: vec![(Dtype::F64, 6e11), (Dtype::F32, 35.6e12), (Dtype::Bf16, 71e12)],
        bandwidth: 936e9,
        efficiency: (0.6, 0.8),
        launch: Nanos(5000),
        copy: Some(600e9),
        codecs: vec![(Codec::CastF16, 9e11, 8e11), (Codec::Zvc, 3e11, 3.5e11)],
        link: Some(Link {
            out_bandwidth: 25e9,
            in_bandwidth: 23.5 * 1_073_741_824.0,
            duplex_cap: 40e9,
            latency: Nanos(10_500),
            asynchronous: true,
        }),
        host_memory: Bytes(64_000_000_000),
        disk: Some(Store {
            capacity: Bytes(1_000_000_000_000),
            link: Link {
                out_bandwidth: 3e9,
                in_bandwidth: 7e9,
                duplex_cap: f64::INFINITY,
                latency: Nanos(80_000),
                asynchronous: false,
            },
        }),
    };
    assert_eq!(device, expected);
}

#[test]
fn every_figure_is_checked() {
    let message = |from: &str, to: &str| {
        assert!(GOOD.contains(from), "{from}");
        device_toml::read(&GOOD.replace(from, to)).unwrap_err().to_string()
    };
    let messages = [
        message("\"24GiB\"", "\"24 Gigs\""),
        message("\"24GiB\"", "0"),
        message("\"24GiB\"", "-5"),
        message("\"24GiB\"", "0.5"),
        message("align = 512", "align = 96"),
        message("align = 512", "aling = 512"),
        message("align = 512", "align = 512\nalign = 512"),
        message("f32 =", "f31 ="),
        message("f32 = \"35.6TFLOP/s\", ", ""),
        message("35.6TFLOP/s", "35.6TB/s"),
        message("71e12", "inf"),
        message("71e12", "nan"),
        message("71e12", "-1.0"),
        message("936 GB/s", "936 Gb/s"),
        message("936 GB/s", "1e3GB/s"),
        message("5000", "0"),
        message("5000", "\"5 minutes\""),
        message("5000", "true"),
        message("launch", "efficiency = { compute = 1.5, memory = 1 }\nlaunch"),
        message("\nlink =", "\n#"),
        message("{ out", "{ out ="),
        message("\"mine\"", "\"\\u001b[31m\""),
        message("\"1TB\"", "0"),
        message("\"80us\"", "0"),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn the_presets_are_those_the_manual_lists() {
    let names: Vec<&str> = presets().iter().map(|preset| preset.device.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "K40", "K80", "TitanX", "P100", "P40", "1080Ti", "2080Ti", "V100-16", "V100-32", "V100S", "T4",
            "A100-40", "A100-80", "g10-a100", "A10", "3060", "3090", "L4", "4090", "H100", "H200", "5090",
            "CPU"
        ]
    );
    let manual = include_str!("../../../docs/devices.md");
    for preset in presets() {
        let device = &preset.device;
        assert!(preset.source.len() > 30, "{}", device.name);
        let row = manual.lines().find(|line| line.starts_with(&format!("| `{}` |", device.name))).unwrap();
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let rate = |dtype| device.flops.iter().find(|(d, _)| *d == dtype).map(|&(_, rate)| rate);
        assert_eq!(cells[2], device.memory.to_string());
        assert_eq!(cells[3], format!("{} TFLOP/s", rate(Dtype::F32).unwrap() / 1e12));
        assert_eq!(
            cells[4],
            rate(Dtype::F16).map_or(String::new(), |rate| format!("{} TFLOP/s", rate / 1e12))
        );
        assert_eq!(cells[5], format!("{} GB/s", device.bandwidth / 1e9));
        let link = device.link.map_or("none".to_owned(), |link| {
            let (out, inward) = (link.out_bandwidth / 1e9, link.in_bandwidth / 1e9);
            match (out == inward, link.duplex_cap.is_finite()) {
                (true, false) => format!("{out} GB/s"),
                (true, true) => format!("{out} GB/s, both ways {}", link.duplex_cap / 1e9),
                _ => format!("{out}, {inward} GB/s"),
            }
        });
        let disk = device.disk.map_or(String::new(), |disk| {
            assert_eq!(disk.link.out_bandwidth, disk.link.in_bandwidth, "{}", device.name);
            format!("; SSD {} GB/s", disk.link.out_bandwidth / 1e9)
        });
        assert_eq!(cells[6], link + &disk, "{}", device.name);
        assert_eq!(preset_of(&device.name.to_lowercase()), Some(device.name.clone()));
    }
    assert_eq!(preset_of("a100 80").as_deref(), Some("A100-80"));
    assert_eq!(preset_of("titan-x").as_deref(), Some("TitanX"));
    assert_eq!(preset_of("NVIDIA GeForce RTX 4090").as_deref(), Some("4090"));
    assert_eq!(preset_of("Tesla T4").as_deref(), Some("T4"));
    assert_eq!(preset_of("a100"), None);
    for (sized, name) in [
        ("H100-80", "H100"),
        ("NVIDIA H100 80GB", "H100"),
        ("4090-24gib", "4090"),
        ("NVIDIA L4 24 GB", "L4"),
        ("h200-139", "H200"),
        ("T4-16", "T4"),
        ("A100 80G", "A100-80"),
    ] {
        assert_eq!(preset_of(sized).as_deref(), Some(name), "{sized}");
    }
    for wrong in ["H100-96", "H100-81", "H100GB", "H100-80-80", "A100-81"] {
        assert_eq!(preset_of(wrong), None, "{wrong}");
    }
}

fn preset_of(name: &str) -> Option<String> {
    preset(name).map(|device| device.name)
}

#[test]
fn the_documented_example_reads() {
    let page = include_str!("../../../docs/devices.md");
    let start = page.find("```toml").unwrap() + 7;
    let device = device_toml::read(&page[start..start + page[start..].find("```").unwrap()]).unwrap();
    assert_eq!((device.name.as_str(), device.memory), ("my workstation", Bytes(24 << 30)));
}

#[test]
fn damage_is_refused_without_a_panic() {
    survives_every_flip_and_cut(GOOD.as_bytes(), read);
    survives_random_damage(GOOD.as_bytes(), 5, read);
    let deep = format!("name = {}", "[".repeat(100_000));
    assert!(device_toml::read(&deep).is_err());
}
