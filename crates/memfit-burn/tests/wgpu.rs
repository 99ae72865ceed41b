//! On Wgpu, whatever it finds to run on: the bits of the plain backend within budgets, online and planned. By hand, as no adapter need be there:
//! `cargo test -p memfit-burn --features wgpu --test wgpu`; a software device (Mesa's lavapipe) will do.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking")]

mod dense;

use burn::backend::Autodiff;
use burn::module::{Module as _, ModuleMapper, Param};
use burn::optim::{AdamConfig, GradientsParams, Optimizer as _};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, TensorData};
use dense::Net;
use memfit_burn::{
    Budget, Memfit, Mode, Options, Wgpu, WgpuDevice, attempt, device_memory, enable_with, needs, report,
    reset_peak, step,
};

const BATCH: usize = 512;
const WIDTHS: [usize; 8] = [16, 64, 64, 64, 64, 64, 64, 4];

fn waves(count: usize, from: usize) -> Vec<f32> {
    (0..count).map(|at| ((at * 7 + from * 13) as f32).sin() / 8.0).collect()
}

/// Parameters that are the same on every backend: Wgpu's random numbers are not those that it draws within memfit.
struct Waves(usize);

impl<B: Backend> ModuleMapper<B> for Waves {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        self.0 += 1;
        let from = self.0;
        param.map(|tensor| {
            let shape = tensor.shape();
            Tensor::from_data(TensorData::new(waves(shape.num_elements(), from), shape), &tensor.device())
                .require_grad()
        })
    }
}

/// Losses of five steps, and all parameters after them.
fn train<B: AutodiffBackend>(device: &B::Device, ended: &mut dyn FnMut()) -> Vec<Vec<f32>> {
    let mut net = Net::<B>::new(&WIDTHS, device).map(&mut Waves(0));
    let mut optimizer = AdamConfig::new().init();
    let mut seen = Vec::new();
    for step in 0..5 {
        let draw = |from: usize, width: usize| {
            Tensor::<B, 2>::from_data(TensorData::new(waves(BATCH * width, from), [BATCH, width]), device)
        };
        let loss = (net.forward(draw(step, 16)) - draw(step + 100, 4)).powi_scalar(2).mean();
        seen.push(loss.to_data().to_vec::<f32>().unwrap());
        let gradients = GradientsParams::from_grads(loss.backward(), &net);
        net = optimizer.step(1e-2, net, gradients);
        ended();
    }
    for layer in &net.layers {
        seen.push(layer.weight.val().to_data().to_vec().unwrap());
        seen.extend(layer.bias.as_ref().map(|bias| bias.val().to_data().to_vec().unwrap()));
    }
    seen
}

#[test]
fn trainings_have_the_bits_of_the_plain_backend_within_budgets() {
    let device = WgpuDevice::default();
    let plain = train::<Autodiff<Wgpu>>(&device, &mut || ());
    assert_eq!(plain, train::<Autodiff<Wgpu>>(&device, &mut || ()), "the plain backend repeats itself");
    enable_with(&device, Options { record: true, ..Options::default() }).unwrap();
    let free = train::<Autodiff<Memfit<Wgpu>>>(&device, &mut || step(&device).unwrap());
    assert_eq!(free, plain, "without a limit");
    let needs = needs(&device).unwrap();
    println!("{needs:?}, pools {:?}", device_memory(&device));
    let mut repeated = 0;
    for (parts, mode) in
        [8, 6, 5].into_iter().flat_map(|parts| [(parts, Mode::Online), (parts, Mode::Planned)])
    {
        let bytes = needs.floor.0 + (needs.peak.0 - needs.floor.0) * parts / 10;
        enable_with(&device, Options { budget: Budget::of(bytes), mode, ..Options::default() }).unwrap();
        reset_peak(&device);
        let trained =
            attempt(&device, || train::<Autodiff<Memfit<Wgpu>>>(&device, &mut || step(&device).unwrap()));
        assert_eq!(trained.unwrap(), plain, "floor+{parts}0 %, {mode:?}");
        let report = report(&device);
        assert!(report.engine.peak.0 <= bytes, "{} of {bytes}", report.engine.peak);
        println!(
            "floor+{parts}0 %, {mode:?}: {} of {bytes}, {} repeated",
            report.engine.peak.0, report.engine.recomputes
        );
        repeated += report.engine.recomputes;
    }
    assert!(repeated > 0, "the budgets bind");
}
