//! Burn's own trainer within a budget: two epochs with validation, data loaders of two threads, checkpoints in files; the same metrics and the
//! same parameters as without memfit.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use burn::backend::Autodiff;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::lr_scheduler::constant::ConstantLr;
use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::AdamConfig;
use burn::record::{DefaultRecorder, Recorder};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor, TensorData};
use burn_train::metric::{AccuracyMetric, LossMetric};
use burn_train::{ClassificationOutput, InferenceStep, Learner, SupervisedTraining, TrainOutput, TrainStep};
use memfit_burn::{Budget, Flex, FlexDevice, Memfit, MemoryMetric, attempt, enable, report};

mod dense;
use dense::Net;

type B = Autodiff<Memfit<Flex>>;

const WIDTHS: [usize; 10] = [24, 24, 24, 24, 24, 24, 24, 24, 24, CLASSES];
const CLASSES: usize = 5;
const BATCH: usize = 128;
/// An item's features and its class, on the device.
const BYTES: u64 = (WIDTHS[0] * size_of::<f32>() + size_of::<i32>()) as u64;

/// Features and the class that shows in them.
#[derive(Clone, Debug)]
struct Item {
    features: Vec<f32>,
    class: i64,
}

/// The same items come again and again, in a `cycle`.
fn items(count: usize, cycle: usize) -> Vec<Item> {
    let item = |at: usize| {
        let shows = |feature: usize| if feature % CLASSES == at % CLASSES { 0.5 } else { 0.0 };
        let number = |feature: usize| ((at * 31 + feature * 17) % 23) as f32 / 23.0 - 0.5 + shows(feature);
        let class = i64::try_from(at % CLASSES).expect("few classes");
        Item { features: (0..WIDTHS[0]).map(number).collect(), class }
    };
    (0..count).map(|at| item(at % cycle)).collect()
}

#[derive(Clone, Debug)]
struct Batch<B: Backend> {
    features: Tensor<B, 2>,
    targets: Tensor<B, 1, Int>,
}

#[derive(Clone)]
struct Batches;

impl<B: Backend> Batcher<B, Item, Batch<B>> for Batches {
    fn batch(&self, items: Vec<Item>, device: &B::Device) -> Batch<B> {
        let features: Vec<f32> = items.iter().flat_map(|item| item.features.iter().copied()).collect();
        let targets: Vec<i64> = items.iter().map(|item| item.class).collect();
        Batch {
            features: Tensor::from_data(TensorData::new(features, [items.len(), WIDTHS[0]]), device),
            targets: Tensor::from_data(TensorData::new(targets, [items.len()]), device),
        }
    }
}

#[derive(Module, Debug)]
struct Classifier<B: Backend> {
    net: Net<B>,
}

impl<B: Backend> Classifier<B> {
    fn new(device: &B::Device) -> Self {
        Classifier { net: Net::new(&WIDTHS, device) }
    }

    fn classify(&self, batch: Batch<B>) -> ClassificationOutput<B> {
        let output = self.net.forward(batch.features);
        let loss = CrossEntropyLossConfig::new().init(&output.device());
        let loss = loss.forward(output.clone(), batch.targets.clone());
        ClassificationOutput::new(loss, output, batch.targets)
    }
}

impl<B: AutodiffBackend> TrainStep for Classifier<B> {
    type Input = Batch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: Batch<B>) -> TrainOutput<ClassificationOutput<B>> {
        let output = self.classify(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl<B: Backend> InferenceStep for Classifier<B> {
    type Input = Batch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: Batch<B>) -> ClassificationOutput<B> {
        self.classify(batch)
    }
}

fn loader<B: Backend>(items: Vec<Item>, workers: usize) -> Arc<dyn DataLoader<B, Batch<B>>> {
    DataLoaderBuilder::new(Batches).batch_size(BATCH).num_workers(workers).build(InMemDataset::new(items))
}

/// Trains for two epochs, and leaves the trainer's files in `folder`; `memory` is a metric beside the usual ones.
fn learn<B: AutodiffBackend<Device = FlexDevice>>(
    folder: &Path,
    items: Vec<Item>,
    workers: usize,
    memory: Option<MemoryMetric<FlexDevice>>,
) -> Classifier<B::InnerBackend> {
    B::seed(&FlexDevice, 21);
    let valid = items.iter().take(3 * BATCH).cloned().collect();
    let mut training = SupervisedTraining::new(
        folder,
        loader::<B>(items, workers),
        loader::<B::InnerBackend>(valid, workers),
    )
    .metric_train_numeric(LossMetric::new())
    .metric_train_numeric(AccuracyMetric::new())
    .metric_valid_numeric(LossMetric::new())
    .metric_valid_numeric(AccuracyMetric::new())
    .with_file_checkpointer(DefaultRecorder::new())
    .with_application_logger(None)
    .num_epochs(2);
    if let Some(memory) = memory {
        training = training.metric_train_numeric(memory);
    }
    let model = Classifier::<B>::new(&FlexDevice);
    training.launch(Learner::new(model, AdamConfig::new().init(), ConstantLr::new(1e-3))).model
}

/// All numbers that were logged, by file.
fn logged(folder: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for split in ["train", "valid"] {
        for epoch in ["epoch-1", "epoch-2"] {
            for file in std::fs::read_dir(folder.join(split).join(epoch)).expect("a folder of metrics") {
                let path = file.expect("a file").path();
                let name = path.strip_prefix(folder).expect("a file in it").display().to_string();
                files.insert(name, std::fs::read_to_string(&path).expect("a log"));
            }
        }
    }
    files
}

struct Bits(Vec<u32>);

impl<B: Backend> ModuleVisitor<B> for Bits {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let data: Vec<f32> = param.val().into_data().to_vec().expect("32-bit numbers");
        self.0.extend(data.iter().map(|number| number.to_bits()));
    }
}

fn parameters<B: Backend>(model: &Classifier<B>) -> Vec<u32> {
    let mut bits = Bits(Vec::new());
    model.visit(&mut bits);
    bits.0
}

/// What was logged, and the parameters in the end.
type Outcome = (BTreeMap<String, String>, Vec<u32>);

fn outcome<B: AutodiffBackend<Device = FlexDevice>>(items: Vec<Item>, workers: usize) -> Outcome {
    let folder = tempfile::tempdir().expect("a folder");
    let model = learn::<B>(folder.path(), items, workers, None);
    (logged(folder.path()), parameters(&model))
}

#[test]
fn burns_trainer_has_the_same_metrics() {
    // Of two workers' batches either may come first: all are the same ones there.
    for (items, workers) in [(items(6 * BATCH, BATCH), 2), (items(700, 700), 1)] {
        let expected = outcome::<Autodiff<Flex>>(items.clone(), workers);
        let names: Vec<_> = expected.0.keys().collect();
        assert!(names.len() >= 8 && names.iter().any(|name| name.contains("Loss")), "{names:?}");
        enable(&FlexDevice, Budget::UNLIMITED).expect("a device without tensors");
        assert!(outcome::<B>(items.clone(), workers) == expected, "no limit, {workers} workers");
        // Loaders make as many batches ahead as they find time for, and those can't be evicted: a step has its share beside all of an epoch.
        enable(&FlexDevice, Budget::UNLIMITED).expect("a device without tensors");
        outcome::<B>(items.clone(), 0);
        let ahead = items.len() as u64 * BYTES;
        let budget = report(&FlexDevice).engine.peak.0 * 6 / 10 + ahead;
        enable(&FlexDevice, Budget::of(budget)).expect("a device without tensors");
        let folder = tempfile::tempdir().expect("a folder");
        let metric = MemoryMetric::new(&FlexDevice);
        let model = attempt(&FlexDevice, || learn::<B>(folder.path(), items, workers, Some(metric)));
        let model = model.expect("room");
        let mut found = logged(folder.path());
        let memory: Vec<String> = found.keys().filter(|name| name.contains("Memory")).cloned().collect();
        assert_eq!(memory.len(), 2, "{memory:?}");
        for name in memory {
            let log = found.remove(&name).unwrap_or_default();
            let mib: Vec<f64> =
                log.split_whitespace().filter_map(|word| word.split(',').next()?.parse().ok()).collect();
            println!("{name}: {mib:?} MiB of {budget} B");
            assert!(
                !mib.is_empty() && mib.iter().all(|mib| *mib > 0.0 && mib * 1048576.0 <= budget as f64),
                "{log}"
            );
        }
        assert_eq!(found, expected.0, "{workers} workers");
        assert_eq!(parameters(&model), expected.1, "{workers} workers");
        let engine = report(&FlexDevice).engine;
        assert!(engine.peak.0 <= budget && engine.recomputes > 0, "{engine:?}");
        // What was saved is what was trained.
        let recorder = DefaultRecorder::new();
        let saved =
            recorder.load(folder.path().join("checkpoint/model-2"), &FlexDevice).expect("a checkpoint");
        let loaded = Classifier::<Memfit<Flex>>::new(&FlexDevice).load_record(saved);
        assert_eq!(parameters(&loaded), expected.1);
    }
}
