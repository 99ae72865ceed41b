//! What a training has computed, to be compared bit by bit.

use std::hash::{DefaultHasher, Hash, Hasher};

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, TensorData};

/// What a training has computed, in order: a name, and a hash of the bytes, their type and shape.
pub struct Log<'a> {
    pub seen: Vec<(String, u64)>,
    ended: &'a mut dyn FnMut(usize),
    steps: usize,
}

fn hash(data: &TensorData) -> u64 {
    let mut hasher = DefaultHasher::new();
    (data.as_bytes(), format!("{:?} {:?}", data.dtype, data.shape)).hash(&mut hasher);
    hasher.finish()
}

struct Parameters<'a, 'b>(&'a mut Log<'b>, usize);

impl<B: Backend> ModuleVisitor<B> for Parameters<'_, '_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.1 += 1;
        self.0.note(&format!("parameter {}", self.1), &param.val());
    }
}

struct Gradients<'a, 'b>(&'a mut Log<'b>, usize, &'a GradientsParams);

impl<B: AutodiffBackend> ModuleVisitor<B> for Gradients<'_, '_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.1 += 1;
        if let Some(gradient) = self.2.get::<B::InnerBackend, D>(param.id) {
            self.0.note(&format!("gradient {}", self.1), &gradient);
        }
    }
}

impl<'a> Log<'a> {
    /// `ended` is told when a step has ended, and how many there were before.
    pub fn new(ended: &'a mut dyn FnMut(usize)) -> Log<'a> {
        Log { seen: Vec::new(), ended, steps: 0 }
    }

    pub fn note<B: Backend, const D: usize>(&mut self, name: &str, tensor: &Tensor<B, D>) {
        self.seen.push((format!("step {}: {name}", self.steps), hash(&tensor.to_data())));
    }

    pub fn parameters<B: Backend, M: Module<B>>(&mut self, module: &M) {
        module.visit(&mut Parameters(self, 0));
    }

    pub fn gradients<B: AutodiffBackend, M: Module<B>>(&mut self, module: &M, gradients: &GradientsParams) {
        module.visit(&mut Gradients(self, 0, gradients));
    }

    pub fn end_step(&mut self) {
        (self.ended)(self.steps);
        self.steps += 1;
    }

    /// Trains `module` for `steps` steps; `loss` is told which.
    pub fn fit<B, M>(
        &mut self,
        mut module: M,
        mut optimizer: impl Optimizer<M, B>,
        rate: f64,
        steps: usize,
        mut loss: impl FnMut(&M, usize) -> Tensor<B, 1>,
    ) -> M
    where
        B: AutodiffBackend,
        M: burn::module::AutodiffModule<B>,
    {
        for step in 0..steps {
            let loss = loss(&module, step);
            self.note("loss", &loss);
            let gradients = GradientsParams::from_grads(loss.backward(), &module);
            self.gradients(&module, &gradients);
            module = optimizer.step(rate, module, gradients);
            self.end_step();
        }
        self.parameters(&module);
        module
    }
}
