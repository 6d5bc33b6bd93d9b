//! The networks of the example `mlperf`: predictions, losses and gradients of a training step against PyTorch's.

use gradloom::Runtime;
use gradloom_tests::here;

#[path = "../../native/examples/mlperf/bert.rs"]
mod bert;
#[path = "../../native/examples/mlperf/compare.rs"]
mod compare;
#[path = "../../native/examples/noise/mod.rs"]
mod noise;
#[path = "../../native/examples/mlperf/resnet.rs"]
mod resnet;
#[path = "../../native/examples/mlperf/retinanet.rs"]
mod retinanet;
#[path = "../../native/examples/mlperf/rnnt.rs"]
mod rnnt;
#[path = "../../native/examples/mlperf/unet3d.rs"]
mod unet3d;
#[path = "../../native/examples/mlperf/weights.rs"]
mod weights;

fn check(device: &str) {
    for (name, network) in compare::NETWORKS {
        let Some(mut rt) = here::device(device, Runtime::open(device, 2)) else { return };
        let step = weights::train(&mut rt, &network).unwrap();
        let (off, at) = compare::off(name, &step).unwrap();
        assert!(off <= compare::LIMIT, "{name} on {device}: off by {off} of the largest, {at}");
        // the comparison sees another network
        let [before, after] = step.losses;
        let other = weights::Step { losses: [after, before], ..step };
        assert!(compare::off(name, &other).unwrap().0 > compare::LIMIT, "{name}: a step that changes nothing");
    }
}

#[test]
fn networks_of_benchmarks_learn_as_in_pytorch_on_cpu() {
    check("cpu");
}

#[cfg(feature = "wgpu")]
#[test]
fn networks_of_benchmarks_learn_as_in_pytorch_on_wgpu() {
    check("wgpu");
}
