//! Two models that train on threads of their own, on one device within one budget, learn what they learn without memfit.

use burn::backend::Autodiff;
use burn::optim::AdamConfig;
use burn::tensor::backend::AutodiffBackend;
use burn_outside::Log;
use burn_outside::networks::routine::Convolutions;
use burn_outside::networks::{cross_entropy, images};
use memfit_burn::{Budget, Flex, FlexDevice, Memfit, enable, report};

type B = Autodiff<Memfit<Flex>>;

#[test]
fn two_models_train_on_two_threads() {
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
