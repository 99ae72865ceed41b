//! Burn's own trainer within a budget: two epochs with validation, data loaders of two threads, checkpoints in files; the same metrics and the
//! same parameters as without memfit.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use burn::backend::Autodiff;
use burn::module::Module;
use burn::optim::AdamConfig;
use burn::record::{DefaultRecorder, Recorder};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn_outside::Log;
use burn_outside::classifier::{Classifier, Item, items, learn};
use burn_outside::networks::routine::Convolutions;
use burn_outside::networks::{cross_entropy, images};
use memfit_burn::{Budget, Flex, FlexDevice, Memfit, MemoryMetric, attempt, enable, report};

type B = Autodiff<Memfit<Flex>>;

/// There is one device: one test at a time.
static DEVICE: Mutex<()> = Mutex::new(());

/// All numbers that were logged, by file, but for those of memory.
fn logged(folder: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for split in ["train", "valid"] {
        for epoch in ["epoch-1", "epoch-2"] {
            let folder = folder.join(split).join(epoch);
            for file in std::fs::read_dir(&folder).expect("a folder of metrics") {
                let path = file.expect("a file").path();
                let name = path
                    .strip_prefix(folder.parent().unwrap().parent().unwrap())
                    .unwrap()
                    .display()
                    .to_string();
                files.insert(name, std::fs::read_to_string(&path).expect("a log"));
            }
        }
    }
    files
}

fn parameters<B: Backend>(model: &Classifier<B>) -> Vec<(String, u64)> {
    let nothing = &mut |_| {};
    let mut log = Log::new(nothing);
    log.parameters(model);
    log.seen
}

type Outcome = (BTreeMap<String, String>, Vec<(String, u64)>);

fn outcome<B: AutodiffBackend<Device = FlexDevice>>(items: Vec<Item>, workers: usize) -> Outcome {
    let folder = tempfile::tempdir().expect("a folder");
    let model = learn::<B, MemoryMetric<FlexDevice>>(folder.path(), items, workers, &FlexDevice, None);
    (logged(folder.path()), parameters(&model))
}

#[test]
fn burns_trainer_has_the_same_metrics() {
    let _alone = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    // Of two workers' batches either may come first: all are the same ones there.
    for (items, workers) in [(items(96, 16), 2), (items(88, 88), 1)] {
        let expected = outcome::<Autodiff<Flex>>(items.clone(), workers);
        assert!(
            expected.0.len() >= 8 && expected.0.keys().any(|name| name.contains("Loss")),
            "{:?}",
            expected.0.keys()
        );
        enable(&FlexDevice, Budget::UNLIMITED).expect("a device without tensors");
        assert!(outcome::<B>(items.clone(), workers) == expected, "no limit, {workers} workers");
        let peak = report(&FlexDevice).engine.peak.0;
        let budget = peak * 6 / 10;
        enable(&FlexDevice, Budget::of(budget)).expect("a device without tensors");
        let folder = tempfile::tempdir().expect("a folder");
        let model = attempt(&FlexDevice, || {
            let metric = MemoryMetric::new(&FlexDevice);
            learn::<B, _>(folder.path(), items.clone(), workers, &FlexDevice, Some(metric))
        });
        let model = model.expect("room");
        let mut found = logged(folder.path());
        let memory: Vec<String> = found.keys().filter(|name| name.contains("Memory")).cloned().collect();
        assert_eq!(memory.len(), 2, "{memory:?}");
        for name in memory {
            let log = found.remove(&name).unwrap_or_default();
            let mib: Vec<f64> =
                log.split_whitespace().filter_map(|word| word.split(',').next()?.parse().ok()).collect();
            println!("{name}: {mib:?} MiB of {} B", budget);
            assert!(
                !mib.is_empty() && mib.iter().all(|mib| *mib > 0.0 && mib * 1048576.0 <= budget as f64),
                "{log}"
            );
        }
        assert_eq!(found, expected.0, "{workers} workers");
        assert_eq!(parameters(&model), expected.1, "{workers} workers");
        assert!(report(&FlexDevice).engine.peak.0 <= budget && report(&FlexDevice).engine.recomputes > 0);
        // What was saved is what was trained.
        let recorder = DefaultRecorder::new();
        let record =
            recorder.load(folder.path().join("checkpoint/model-2"), &FlexDevice).expect("a checkpoint");
        let loaded = Classifier::<Memfit<Flex>>::new(&FlexDevice).load_record(record);
        assert_eq!(parameters(&loaded), expected.1);
    }
}

#[test]
fn two_models_train_on_two_threads() {
    let _alone = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    /// What the thread of model `which` logs. Its steps draw no random numbers: there is one stream for both.
    fn train<B: AutodiffBackend<Device = FlexDevice>>(
        net: Convolutions<B>,
        which: u64,
    ) -> Vec<(String, u64)> {
        let nothing = &mut |_| {};
        let mut log = Log::new(nothing);
        log.fit(net, AdamConfig::new().init(), 1e-3, 12, |net, step| {
            let (x, targets) = images::<B>(100 * which + step as u64, [8, 3, 16], 5, &FlexDevice);
            cross_entropy(net.forward(x), targets)
        });
        log.seen
    }
    fn both<B: AutodiffBackend<Device = FlexDevice>>() -> Vec<Vec<(String, u64)>> {
        B::seed(&FlexDevice, 22);
        // Parameters are made when they are first read, and draw numbers then.
        let nets = [0, 1].map(|_| {
            let net = Convolutions::<B>::new(5, &FlexDevice);
            Log::new(&mut |_| {}).parameters(&net);
            net
        });
        let threads: Vec<_> = nets
            .into_iter()
            .zip([1, 2])
            .map(|(net, which)| std::thread::spawn(move || train::<B>(net, which)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a training")).collect()
    }
    let expected = both::<Autodiff<Flex>>();
    enable(&FlexDevice, Budget::UNLIMITED).expect("a device without tensors");
    assert!(both::<B>() == expected);
    let budget = report(&FlexDevice).engine.peak.0 * 6 / 10;
    enable(&FlexDevice, Budget::of(budget)).expect("a device without tensors");
    for _ in 0..3 {
        assert!(both::<B>() == expected);
    }
    let report = report(&FlexDevice);
    println!("{} of {budget} B, {} ops again", report.engine.peak, report.engine.recomputes);
    assert!(report.engine.peak.0 <= budget && report.engine.recomputes > 0 && report.tensors == 0);
}
