//! Examples that are compared with others' numbers: Stable Diffusion with diffusers', YOLOv8 with onnxruntime's. Their own comparisons see a
//! network that is not the same.

use super::models::{arrays, cached, error, folder};
use gradloom::engine::Bytes;
use gradloom::io::HostTensor;
use gradloom::io::onnx::{Model, Network, Train};
use gradloom::nn::StateDict;
use gradloom::{Runtime, Tensor};
use gradloom_tests::here;

#[path = "../../native/examples/noise/mod.rs"]
mod noise;

#[path = "../../native/examples/stable_diffusion/around.rs"]
mod around;
#[path = "../../native/examples/stable_diffusion/blocks.rs"]
mod blocks;
#[path = "../../native/examples/stable_diffusion/compare.rs"]
mod compare;
#[path = "../../native/examples/stable_diffusion/unet.rs"]
mod unet;

#[path = "../../native/examples/yolo/boxes.rs"]
mod boxes;
#[path = "../../native/examples/yolo/model.rs"]
mod yolo;

/// What the boxes are drawn into.
mod pictures {
    pub(crate) type Picture = gradloom::image_folder::Image;
}

/// `given` is what was recorded, and another value would be seen.
fn same(name: &str, device: &str, mut given: compare::Given) {
    for (what, off) in compare::off(name, &given).unwrap() {
        assert!(off <= compare::LIMIT, "{name} on {device}: {what} is off by {off} of the largest");
    }
    given[0].1[7] += 0.01;
    assert!(compare::off(name, &given).unwrap()[0].1 > compare::LIMIT);
}

#[test]
fn stable_diffusion_gives_what_diffusers_does() {
    let Some(mut rt) = here::device("cpu", Runtime::open("cpu", 2)) else { return };
    let (given, later) = compare::sd(&mut rt).unwrap();
    assert_eq!(later, 0, "steps are one plan");
    same("sd", "cpu", given);
}

#[test]
fn the_network_of_sdxl_gives_what_diffusers_does() {
    for device in ["cpu", "wgpu"] {
        let Some(mut rt) = here::device(device, Runtime::open(device, 2)) else { continue };
        same("sdxl", device, compare::sdxl(&mut rt).unwrap());
    }
}

#[test]
fn yolo_of_weights_alone_finds_the_face() {
    let Some(file) = cached("yolov8n_nudenet/model.onnx", "yolo") else { return };
    let Some(mut rt) = here::device("cpu", Runtime::open("cpu", 2)) else { return };
    let session = rt.session().clone();
    let model = Model::parse(std::fs::read(file).unwrap()).unwrap();
    let network = Network::new(&model, &session, &Train::All).unwrap();
    let weights: StateDict = network.parameters().into_iter().collect();
    let image = &arrays(&folder("yolov8n_nudenet").join("input.npz"))[0].1;
    let image = Tensor::from_bytes(&session, image.dtype, &image.shape, Bytes::new(image.data.clone())).unwrap();
    let given = yolo::Yolo { session, weights: &weights }.forward(&image).unwrap();
    let want = &arrays(&folder("yolov8n_nudenet").join("expected.npz"))[0].1;
    let got = rt.to_vec::<f32>(&given).unwrap();
    let off = error(&HostTensor::from_f32(given.shape(), &got).unwrap(), want);
    assert!(off < 1e-4, "off onnxruntime's by {off}");

    let found = boxes::found(&got, given.shape()[2], 0.25, 0.45, 1.0);
    let [face] = &found[..] else { panic!("{found:?}") };
    assert_eq!(face.class, 1);
    assert!((face.score - 0.826).abs() < 2e-3 && boxes::overlap(face.sides, [108.4, 51.6, 171.6, 112.2]) > 0.9);
    let mut picture = pictures::Picture { width: 320, height: 320, pixels: vec![0; 3 * 320 * 320] };
    boxes::draw(&mut picture, &found);
    let [left, top, right, bottom] = face.sides.map(|x| x.round() as usize);
    let painted = |x: usize, y: usize| picture.pixels[3 * (320 * y + x)] > 0;
    assert!(painted(left, top) && painted(right, bottom) && painted(left + 20, top + 1));
    assert!(!painted(left + 2, top + 2) && !painted(left - 1, top) && !painted(right + 1, bottom));
}

#[test]
fn of_boxes_that_overlap_the_best_stays() {
    // middles, sizes, and two classes, of five places: the second overlaps the first, the third too but is of another class, the fourth is unlikely
    let values = [
        [10.0, 11.0, 10.0, 40.0, 40.0],
        [10.0, 10.0, 10.0, 40.0, 41.0],
        [8.0, 8.0, 8.0, 8.0, 8.0],
        [6.0, 6.0, 6.0, 6.0, 6.0],
        [0.9, 0.8, 0.1, 0.1, 0.3],
        [0.1, 0.1, 0.7, 0.2, 0.2],
    ]
    .concat();
    let found = boxes::found(&values, 5, 0.25, 0.45, 2.0);
    let short: Vec<(usize, [f32; 4])> = found.iter().map(|f| (f.class, f.sides)).collect();
    assert_eq!(short, [(0, [12.0, 14.0, 28.0, 26.0]), (1, [12.0, 14.0, 28.0, 26.0]), (0, [72.0, 76.0, 88.0, 88.0])]);
    // a box that hangs over the edge is drawn as far as it goes
    let mut picture = pictures::Picture { width: 20, height: 20, pixels: vec![0; 1200] };
    boxes::draw(&mut picture, &found);
    assert!(picture.pixels[3 * (20 * 14 + 12)] > 0);
}
