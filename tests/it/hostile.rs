//! Operators on what they do not expect: a model chooses the ranks of its values, and what does not fit is an error that names
//! the node.

use gradloom_core::io::HostTensor;
use gradloom_core::io::onnx::{Bound, Feed, Model};
use gradloom_core::{DType, Session, Tensor};
use gradloom_tests::hostile::one_node;
use std::sync::Arc;

#[test]
fn a_box_without_axes_is_an_error_that_names_the_node() {
    let boxes = HostTensor::from_f32(vec![], &[1.0]).unwrap();
    let batch = HostTensor::from_i64(vec![1], &[0]).unwrap();
    let file = one_node("RoiAlign", &["x", "c0", "c1"], 1, &[], &[boxes, batch]);
    let model = Arc::new(Model::parse(file).unwrap());
    let session = Session::new();
    let x = Tensor::zeros(&session, DType::F32, &[1, 1, 4, 4]).unwrap();
    let e = Bound::new(model, &session).build(&[("x", Feed::Tensor(x))]).err().expect("a scalar is no list of boxes");
    assert_eq!(e.code(), "E_MODEL");
    assert!(e.to_string().contains("the_RoiAlign") && e.to_string().contains("boxes"), "{e}");
}
