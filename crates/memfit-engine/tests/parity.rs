//! Parity: with the simulator's settings the engine does to the nanosecond what DTR's simulator does.
//!
//! The figures are those of a run of the original (`../shared/notes/dynamic-rematerialisation.md`, §5.2). Needs
//! `../shared/data/dtr-logs`, and says so where it's absent.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

mod common;

use Cell::{NoRoom, NotRun, Ns, Slow};
use memfit_engine::Settings;
use memfit_engine::replay::{Outcome, replay};

/// What the original did in one cell.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cell {
    /// Ns of recomputation.
    Ns(u64),
    Slow,
    NoRoom,
    NotRun,
}

const EVICTORS: [&str; 6] = ["dtr", "eq", "local", "msps", "lru", "largest"];

/// Log, ratio, recomputation by evictor; for `eq` also peak bytes and score evaluations.
#[rustfmt::skip]
const EXACT: &[(&str, f64, [Cell; 6], u64, u64)] = &[
    ("unet", 1.0, [Ns(1_167_023), Ns(1_167_023), Ns(1_167_023), Ns(1_167_023), Ns(3_610_026), Ns(5_795_651)], 8_409_694_388, 124),
    ("unet", 0.9, [Ns(14_405_888), Ns(14_405_888), Ns(12_127_459), Ns(6_962_674), Ns(16_842_511), Ns(18_904_551)], 7_438_450_340, 793),
    ("unet", 0.8, [Ns(25_109_566), Ns(25_109_566), Ns(24_438_615), Ns(14_507_262), Ns(26_967_582), Ns(55_760_347)], 6_685_737_140, 1_317),
    ("unet", 0.7, [Ns(36_817_991), Ns(36_817_991), Ns(39_630_995), Ns(21_455_968), Ns(45_342_690), Ns(68_966_732)], 5_884_460_180, 1_579),
    ("unet", 0.6, [Ns(56_934_912), Ns(64_823_952), Ns(59_631_733), Ns(38_218_377), Ns(97_727_393), Ns(257_716_873)], 5_018_330_816, 2_962),
    ("unet", 0.5, [Ns(69_099_020), Ns(69_099_020), Ns(368_616_510), Ns(57_664_457), Slow, Ns(286_882_021)], 4_206_747_840, 3_849),
    ("resnet32", 1.0, [Ns(618_363), Ns(618_363), Ns(618_363), Ns(616_339), Ns(733_881), Ns(616_008)], 10_016_238_528, 221),
    ("resnet32", 0.9, [Ns(3_835_894), Ns(3_835_894), Ns(3_835_894), Ns(3_705_720), Ns(9_425_626), Ns(8_718_575)], 9_027_132_944, 1_115),
    ("resnet32", 0.8, [Ns(7_247_214), Ns(7_247_214), Ns(12_070_232), Ns(7_127_298), Ns(19_629_719), Ns(18_846_121)], 8_038_099_904, 1_955),
    ("resnet32", 0.7, [Ns(13_504_872), Ns(13_504_872), Ns(19_691_788), Ns(10_841_481), Ns(27_787_842), Ns(26_997_342)], 7_004_056_320, 2_856),
    ("resnet32", 0.6, [Ns(21_505_887), Ns(21_505_887), Ns(38_913_543), Ns(18_420_276), Ns(37_971_688), Ns(68_196_969)], 6_015_003_584, 3_748),
    ("resnet32", 0.5, [Ns(31_171_049), Ns(31_171_049), Ns(57_367_013), Ns(30_994_326), Slow, Ns(131_831_933)], 5_025_934_272, 4_290),
    ("resnet32", 0.4, [Ns(40_979_773), Ns(40_979_773), Slow, Ns(42_500_899), Slow, Ns(215_550_023)], 3_991_907_264, 4_746),
    ("resnet32", 0.3, [Ns(52_031_523), Ns(52_143_294), Slow, Ns(60_935_140), NotRun, Slow], 3_002_837_952, 5_182),
    ("resnet32", 0.2, [Ns(108_319_018), Ns(96_959_555), NotRun, Ns(125_682_060), NotRun, Slow], 1_968_775_184, 8_837),
    ("transformer", 1.0, [NotRun, Ns(424_325), Ns(424_325), NotRun, Ns(0), Ns(682_815)], 9_857_851_784, 485),
    ("transformer", 0.9, [NotRun, Ns(2_489_902), Ns(2_671_637), NotRun, Ns(9_238_843), Ns(4_462_734)], 8_877_952_136, 1_754),
    ("transformer", 0.8, [NotRun, Ns(5_497_848), Ns(6_048_632), NotRun, Ns(17_940_213), Ns(7_824_048)], 7_889_825_968, 3_077),
    ("transformer", 0.7, [Ns(8_669_212), Ns(8_669_212), Ns(10_305_404), Ns(9_749_389), Ns(27_204_548), Ns(12_733_209)], 6_902_549_656, 4_212),
    ("transformer", 0.6, [NotRun, Ns(12_221_770), Ns(16_593_519), NotRun, Ns(36_926_378), Ns(14_734_013)], 5_918_503_088, 5_163),
    ("transformer", 0.5, [Ns(16_132_164), Ns(16_132_164), Ns(30_974_688), Ns(18_389_385), Slow, Ns(18_102_820)], 4_931_087_872, 6_396),
    ("transformer", 0.4, [NotRun, Ns(25_255_676), Ns(44_491_097), NotRun, Slow, Ns(22_182_418)], 3_944_909_984, 8_391),
    ("transformer", 0.3, [Ns(34_099_986), Ns(34_188_515), Ns(139_488_268), Ns(31_081_154), NotRun, Ns(37_221_776)], 2_959_087_544, 10_705),
    ("transformer", 0.2, [NotRun, Ns(150_533_116), Ns(177_280_451), NotRun, NotRun, Slow], 1_972_867_176, 132_143),
    ("lstm", 0.9, [NotRun, Ns(13_383_376), Ns(10_382_324), NotRun, Ns(33_282_546), Slow], 5_034_977_736, 183_813),
    ("lstm", 0.8, [NotRun, Ns(20_600_153), Ns(45_783_976), NotRun, Ns(66_053_763), Slow], 4_474_440_136, 320_281),
    ("lstm", 0.7, [NotRun, Ns(24_182_329), Ns(84_583_624), NotRun, Ns(100_027_248), NotRun], 3_916_262_128, 409_618),
    ("lstm", 0.6, [NotRun, Ns(32_682_670), Ns(121_593_792), NotRun, Slow, NotRun], 3_356_846_536, 450_562),
    ("lstm", 0.5, [Ns(50_059_927), Ns(54_636_287), Slow, Ns(54_825_647), Slow, NotRun], 2_796_308_936, 437_755),
    ("lstm", 0.4, [NotRun, Ns(122_308_729), Slow, NotRun, NotRun, NotRun], 2_237_886_136, 372_700),
    ("lstm", 0.3, [Ns(231_255_147), Ns(280_905_222), NotRun, Ns(293_847_218), NotRun, NotRun], 1_678_484_136, 449_333),
    ("lstm", 0.2, [NotRun, Ns(423_317_868), NotRun, NotRun, NotRun, NotRun], 1_118_177_736, 423_399),
];

/// Log, ratio, evictor, how it failed.
#[rustfmt::skip]
const FAILURES: &[(&str, f64, &str, Cell)] = &[
    ("unet", 0.4, "dtr", NoRoom),
    ("unet", 0.3, "dtr", NoRoom),
    ("unet", 0.4, "eq", NoRoom),
    ("unet", 0.3, "eq", NoRoom),
    ("unet", 0.4, "local", NoRoom),
    ("unet", 0.3, "local", Slow),
    ("unet", 0.2, "msps", NoRoom),
    ("unet", 0.1, "msps", NoRoom),
    ("unet", 0.5, "lru", Slow),
    ("unet", 0.4, "lru", NoRoom),
    ("unet", 0.4, "largest", NoRoom),
    ("unet", 0.3, "largest", NoRoom),
    ("resnet32", 0.1, "dtr", Slow),
    ("resnet32", 0.1, "eq", NoRoom),
    ("resnet32", 0.4, "local", Slow),
    ("resnet32", 0.3, "local", Slow),
    ("resnet32", 0.1, "msps", NoRoom),
    ("resnet32", 0.5, "lru", Slow),
    ("resnet32", 0.4, "lru", Slow),
    ("resnet32", 0.3, "largest", Slow),
    ("resnet32", 0.2, "largest", Slow),
    ("transformer", 0.1, "eq", NoRoom),
    ("transformer", 0.1, "local", NoRoom),
    ("transformer", 0.5, "lru", Slow),
    ("transformer", 0.4, "lru", Slow),
    ("transformer", 0.2, "largest", Slow),
    ("transformer", 0.1, "largest", Slow),
    ("lstm", 0.1, "eq", NoRoom),
    ("lstm", 0.5, "local", Slow),
    ("lstm", 0.4, "local", Slow),
    ("lstm", 0.6, "lru", Slow),
    ("lstm", 0.5, "lru", Slow),
    ("lstm", 0.9, "largest", Slow),
    ("lstm", 0.8, "largest", Slow),
];

/// Cells given beside the table.
const MORE: &[(&str, f64, &str, Cell)] = &[
    ("unet", 0.4, "msps", Ns(105_047_424)),
    ("unet", 0.3, "msps", Ns(254_681_850)),
    ("lstm", 1.0, "eq", Ns(0)),
    ("lstm", 1.0, "local", Ns(0)),
    ("lstm", 1.0, "lru", Ns(0)),
    ("lstm", 1.0, "largest", Ns(0)),
];

#[test]
fn every_cell_of_the_original_is_met_to_the_nanosecond() {
    for log in common::LOGS {
        let Some(trace) = common::recorded(log) else { continue };
        let base = trace.base();
        let run = |ratio: f64, evictor: &str| {
            let settings = Settings::simulator(common::part(base.peak, ratio), evictor);
            let report = replay(&trace, settings, 1.0).unwrap();
            let cell = match report.outcome {
                Outcome::Done => Ns(report.stats.recompute_ns),
                Outcome::Slow => Slow,
                Outcome::NoRoom(_) => NoRoom,
            };
            (cell, report.stats)
        };
        for (_, ratio, cells, peak, evaluations) in EXACT.iter().filter(|row| row.0 == log) {
            for (evictor, expected) in EVICTORS.iter().zip(cells) {
                if *expected == NotRun {
                    continue;
                }
                let (cell, stats) = run(*ratio, evictor);
                assert_eq!(cell, *expected, "{log} at {ratio} with {evictor}");
                if *evictor == "eq" {
                    assert_eq!((stats.peak.0, stats.evaluations), (*peak, *evaluations), "{log} at {ratio}");
                }
            }
        }
        for (_, ratio, evictor, expected) in FAILURES.iter().chain(MORE).filter(|row| row.0 == log) {
            assert_eq!(run(*ratio, evictor).0, *expected, "{log} at {ratio} with {evictor}");
        }
    }
}

#[test]
fn base_times_and_peaks_are_those_of_the_original() {
    for (log, time, peak) in [
        ("unet", 435_278_292, 8_415_764_640),
        ("resnet32", 291_905_487, 10_061_179_152),
        ("transformer", 276_259_118, 9_864_405_000),
        ("lstm", 769_458_833, 5_595_127_736),
    ] {
        let Some(trace) = common::recorded(log) else { continue };
        assert_eq!((trace.base().time.0, trace.base().peak.0), (time, peak), "{log}");
    }
}
