//! A network that classifies images, and Burn's own trainer: epochs, validation, data loaders with threads of their own, files of checkpoints.

use std::path::Path;
use std::sync::Arc;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::lr_scheduler::constant::ConstantLr;
use burn::module::Module;
use burn::optim::AdamConfig;
use burn::record::DefaultRecorder;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor, TensorData};
use burn::train::metric::{AccuracyMetric, LossMetric, Metric, Numeric};
use burn::train::{ClassificationOutput, InferenceStep, Learner, SupervisedTraining, TrainOutput, TrainStep};

use crate::networks::routine::Convolutions;
use crate::networks::{cross_entropy, numbers};

pub const CLASSES: usize = 5;
const SIZE: usize = 16;

/// An image and its class.
#[derive(Clone, Debug)]
pub struct Item {
    pixels: Vec<f32>,
    class: usize,
}

/// Images, the classes of which show in them. With `cycle` the same ones come again and again.
pub fn items(count: usize, cycle: usize) -> Vec<Item> {
    let item = |at: usize| {
        let class = at % CLASSES;
        let mut pixels = numbers(at as u64 + 1, 3 * SIZE * SIZE);
        pixels.iter_mut().skip(class).step_by(CLASSES).for_each(|pixel| *pixel += 0.5);
        Item { pixels, class }
    };
    (0..count).map(|at| item(at % cycle)).collect()
}

#[derive(Clone, Debug)]
pub struct Batch<B: Backend> {
    images: Tensor<B, 4>,
    targets: Tensor<B, 1, Int>,
}

#[derive(Clone)]
struct Batches;

impl<B: Backend> Batcher<B, Item, Batch<B>> for Batches {
    fn batch(&self, items: Vec<Item>, device: &B::Device) -> Batch<B> {
        let pixels: Vec<f32> = items.iter().flat_map(|item| item.pixels.iter().copied()).collect();
        let targets: Vec<i64> = items.iter().map(|item| item.class as i64).collect();
        Batch {
            images: Tensor::from_data(TensorData::new(pixels, [items.len(), 3, SIZE, SIZE]), device),
            targets: Tensor::from_data(TensorData::new(targets, [items.len()]), device),
        }
    }
}

#[derive(Module, Debug)]
pub struct Classifier<B: Backend> {
    net: Convolutions<B>,
}

impl<B: Backend> Classifier<B> {
    pub fn new(device: &B::Device) -> Self {
        Classifier { net: Convolutions::new(CLASSES, device) }
    }

    fn classify(&self, batch: Batch<B>) -> ClassificationOutput<B> {
        let output = self.net.forward(batch.images);
        let loss = cross_entropy(output.clone(), batch.targets.clone());
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
    DataLoaderBuilder::new(Batches).batch_size(16).num_workers(workers).build(InMemDataset::new(items))
}

/// Trains for two epochs with Burn's trainer, which leaves its files in `folder`; `memory` is a metric beside the usual ones.
pub fn learn<B: AutodiffBackend, M: Metric<Input = ()> + Numeric + 'static>(
    folder: &Path,
    items: Vec<Item>,
    workers: usize,
    device: &B::Device,
    memory: Option<M>,
) -> Classifier<B::InnerBackend> {
    B::seed(device, 21);
    let valid = items.iter().take(48).cloned().collect();
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
    let learner = Learner::new(Classifier::<B>::new(device), AdamConfig::new().init(), ConstantLr::new(1e-3));
    training.launch(learner).model
}
