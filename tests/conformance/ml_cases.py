"""Writes cases of `ai.onnx.ml` operators in the format of `onnx_cases.py`, with onnxruntime's results: `ml_cases.py OUT.zip`."""
import sys, zipfile

import numpy as np
import onnxruntime as ort
from onnx import helper, numpy_helper

rng = np.random.default_rng(5)
WHEN = (1980, 1, 1, 0, 0, 0)
f32 = lambda *shape: rng.standard_normal(shape).astype(np.float32)
CASES = []


def case(name, op, inputs, outputs=1, domain="ai.onnx.ml", **attributes):
    feeds = {f"x{i}": v for i, v in enumerate(inputs)}
    outs = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, list(feeds), outs, domain=domain, **attributes)
    info = lambda n, v: helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
    graph = helper.make_graph([node], name, [info(n, v) for n, v in feeds.items()], [helper.make_empty_tensor_value_info(o) for o in outs])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 4 if op == "LabelEncoder" else 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    results = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)
    CASES.append((name, model, feeds, dict(zip(outs, results))))


def forest(part, trees, depth, features, targets, modes=("BRANCH_LEQ",), nans=False, negative=True, one_target=False):
    """Random trees as the attributes of the older operators."""
    a = {k: [] for k in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true")}
    w = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}
    for t in range(trees):
        count = [0]

        def grow(level):
            i = count[0]
            count[0] += 1
            a["treeids"].append(t)
            a["nodeids"].append(i)
            at = len(a["truenodeids"])
            leaf = level == depth or level > 0 and rng.random() < 0.25
            a["featureids"].append(0 if leaf else int(rng.integers(features)))
            a["values"].append(0.0 if leaf else float(np.float32(np.round(rng.standard_normal(), 1))))
            a["modes"].append("LEAF" if leaf else modes[t % len(modes)])
            a["missing_value_tracks_true"].append(int(nans and rng.random() < 0.5))
            a["truenodeids"].append(0)
            a["falsenodeids"].append(0)
            if leaf:
                picked = [0] if one_target else range(targets) if rng.random() < 0.5 else [int(rng.integers(targets))]
                for k in picked:
                    w["treeids"].append(t)
                    w["nodeids"].append(i)
                    w["ids"].append(k)
                    v = rng.standard_normal() if negative else rng.random() / trees
                    w["weights"].append(float(np.float32(v)))
            else:
                a["truenodeids"][at] = grow(level + 1)
                a["falsenodeids"][at] = grow(level + 1)
            return i

        grow(0)
    return {f"nodes_{k}": v for k, v in a.items()} | {f"{part}_{k}": v for k, v in w.items()}


def main():
    x = np.round(f32(7, 5), 1)
    holes = x.copy()
    holes[::2, 1] = np.nan
    ints = rng.integers(-3, 4, (6, 3)).astype(np.int64)
    case("scaler", "Scaler", [x], offset=[0.5, 1.0, -1.0, 0.0, 2.0], scale=[2.0, 0.5, 1.0, 3.0, -1.0])
    case("scaler_one", "Scaler", [ints], offset=[0.5], scale=[2.0])
    for norm in ("MAX", "L1", "L2"):
        case(f"normalizer_{norm.lower()}", "Normalizer", [np.concatenate([x, np.zeros((1, 5), np.float32)])], norm=norm)
    case("imputer", "Imputer", [holes], imputed_value_floats=[1.0, 2.0, 3.0, 4.0, 5.0], replaced_value_float=float("nan"))
    case("imputer_ints", "Imputer", [ints], imputed_value_int64s=[9], replaced_value_int64=2)
    case("features", "FeatureVectorizer", [x, x[:, :2].copy()], inputdimensions=[5, 2])
    case("one_hot", "OneHotEncoder", [ints], cats_int64s=[-1, 0, 2], zeros=1)
    case("encoder_ints", "LabelEncoder", [ints], keys_int64s=[-1, 0, 2], values_floats=[0.5, 1.5, 2.5], default_float=-7.0)
    case("encoder_floats", "LabelEncoder", [holes], keys_floats=[float("nan"), 0.5], values_int64s=[3, 4], default_int64=8)
    case("linear", "LinearRegressor", [x], coefficients=f32(10).tolist(), intercepts=[0.5, -1.0], targets=2)
    case("linear_softmax", "LinearRegressor", [x], coefficients=f32(10).tolist(), intercepts=[0.5, 0.1], targets=2, post_transform="SOFTMAX")
    for post in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"):
        case(f"classifier_{post.lower()}", "LinearClassifier", [x], 2, coefficients=f32(15).tolist(), intercepts=[0.1, 0.2, -0.3], classlabels_ints=[4, 7, 2], post_transform=post)
    for post in ("NONE", "LOGISTIC"):
        case(f"classifier_binary_{post.lower()}", "LinearClassifier", [x], 2, coefficients=f32(10).tolist(), intercepts=[0.1, -0.2], classlabels_ints=[1, 5], post_transform=post)
    for i, (how, post, modes) in enumerate([("SUM", "NONE", ["BRANCH_LEQ"]), ("AVERAGE", "NONE", ["BRANCH_LT"]), ("MIN", "NONE", ["BRANCH_GT"]), ("MAX", "NONE", ["BRANCH_GTE"]), ("SUM", "SOFTMAX", ["BRANCH_LEQ", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_GT"]), ("SUM", "LOGISTIC", ["BRANCH_LEQ"])]):
        base = {"base_values": [0.5, -1.0, 2.0]} if i % 2 == 0 and how in ("SUM", "AVERAGE") else {}
        case(f"trees_{how.lower()}_{i}", "TreeEnsembleRegressor", [x], n_targets=3, aggregate_function=how, post_transform=post, **base, **forest("target", 6, 4, 5, 3, modes))
    case("trees_one", "TreeEnsembleRegressor", [x], n_targets=1, **forest("target", 1, 3, 5, 1))
    case("trees_nan", "TreeEnsembleRegressor", [holes], n_targets=1, **forest("target", 5, 4, 5, 1, nans=True))
    for post in ("NONE", "SOFTMAX", "LOGISTIC"):
        case(f"forest_{post.lower()}", "TreeEnsembleClassifier", [x], 2, classlabels_int64s=[3, 1, 2], post_transform=post, **forest("class", 6, 4, 5, 3))
    for i, (post, negative, base) in enumerate([("NONE", True, None), ("NONE", False, None), ("LOGISTIC", True, [0.3]), ("LOGISTIC", True, None)]):
        more = {} if base is None else {"base_values": base}
        case(f"forest_binary_{i}", "TreeEnsembleClassifier", [x], 2, classlabels_int64s=[0, 1], post_transform=post, **more, **forest("class", 6, 4, 5, 2, negative=negative, one_target=True))
    case("forest_two", "TreeEnsembleClassifier", [x], 2, classlabels_int64s=[0, 1], **forest("class", 6, 4, 5, 2, negative=False))
    for kind, params in (("LINEAR", [0.0, 0.0, 0.0]), ("POLY", [0.5, 1.0, 2.0]), ("RBF", [0.3, 0.0, 0.0]), ("SIGMOID", [0.2, 0.1, 0.0])):
        case(f"svr_{kind.lower()}", "SVMRegressor", [x], coefficients=f32(4).tolist(), support_vectors=f32(20).tolist(), n_supports=4, rho=[0.3], kernel_type=kind, kernel_params=params)
    case("svr_one_class", "SVMRegressor", [x], coefficients=f32(4).tolist(), support_vectors=f32(20).tolist(), n_supports=4, rho=[0.3], one_class=1, kernel_type="RBF", kernel_params=[0.3, 0.0, 0.0])
    case("svc_three", "SVMClassifier", [x], 2, coefficients=f32(14).tolist(), support_vectors=f32(35).tolist(), vectors_per_class=[2, 3, 2], rho=f32(3).tolist(), classlabels_ints=[5, 6, 7], kernel_type="RBF", kernel_params=[0.3, 0.0, 0.0])
    case("svc_two", "SVMClassifier", [x], 2, coefficients=f32(5).tolist(), support_vectors=f32(25).tolist(), vectors_per_class=[2, 3], rho=[0.2], classlabels_ints=[5, 6], kernel_type="LINEAR", kernel_params=[0.0, 0.0, 0.0])
    image, boxes = f32(2, 3, 8, 9), np.array([[0, 0, 0, 5, 5], [1, 2, 3, 8, 7], [0, 4, 4, 4, 4], [1, -3, 1, 12, 6]], np.float32)
    case("max_roi_pool", "MaxRoiPool", [image, boxes], domain="", pooled_shape=[2, 3], spatial_scale=0.8)
    for mode in ("avg", "max"):
        for form in ("half_pixel", "output_half_pixel"):
            case(f"roi_align_{mode}_{form}", "RoiAlign", [image, boxes[:, 1:].copy(), np.array([0, 1, 0, 1], np.int64)], domain="", mode=mode, coordinate_transformation_mode=form, output_height=3, output_width=2, sampling_ratio=0, spatial_scale=0.9)
    texts = np.array([["red", "green"], ["", "blue"]], dtype=object)
    case("one_hot_strings", "OneHotEncoder", [texts], cats_strings=["red", "blue"], zeros=1)
    case("encoder_strings", "LabelEncoder", [texts], keys_strings=["red", "blue"], values_strings=["r", "b"], default_string="none")
    case("encoder_strings_to_floats", "LabelEncoder", [texts], keys_strings=["red", "", "blue"], values_floats=[0.5, 2.0, 1.5])
    case("classifier_strings", "LinearClassifier", [x], 2, coefficients=f32(15).tolist(), intercepts=[0.1, 0.2, -0.3], classlabels_strings=["a", "b", "c"], post_transform="SOFTMAX")
    case("forest_strings", "TreeEnsembleClassifier", [x], 2, classlabels_strings=["no", "yes", "perhaps"], **forest("class", 6, 4, 5, 3))
    case("svc_strings", "SVMClassifier", [x], 2, coefficients=f32(5).tolist(), support_vectors=f32(25).tolist(), vectors_per_class=[2, 3], rho=[0.2], classlabels_strings=["u", "v"], kernel_type="LINEAR", kernel_params=[0.0, 0.0, 0.0])
    with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        def put(name, data):
            z.writestr(zipfile.ZipInfo(name, WHEN), data, zipfile.ZIP_DEFLATED)

        for name, model, feeds, results in CASES:
            put(f"ml/{name}/model.onnx", model.SerializeToString())
            put(f"ml/{name}/tolerance", "1e-4 1e-5")
            for side, values in (("in", feeds), ("out", results)):
                for i, (k, v) in enumerate(values.items()):
                    put(f"ml/{name}/0/{side}_{i}.pb", numpy_helper.from_array(v, k).SerializeToString())
    print(len(CASES), "cases")


main()
