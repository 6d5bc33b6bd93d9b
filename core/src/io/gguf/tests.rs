//! GGUF against the files and numbers of ggml's Python package (`tests/fixtures/make_gguf.py`), and against bad files.

use super::*;
use crate::io::npz;
use crate::io::testing::mutate;

const QUANTS: &[u8] = include_bytes!("../../../../tests/fixtures/io/quants.gguf");
const DECODED: &[u8] = include_bytes!("../../../../tests/fixtures/io/quants.npz");

#[test]
fn metadata_of_the_python_package_is_read() {
    let g = Gguf::parse(QUANTS).unwrap();
    let get = |k: &str| g.get(k).unwrap();
    assert_eq!(get("general.architecture").as_str(), Some("test"));
    assert_eq!(get("k.str").as_str(), Some("text é"));
    assert_eq!(get("k.u64").as_u64(), Some(1 << 63));
    assert_eq!(get("k.bool").as_bool(), Some(true));
    let numbers = [("k.u8", 200.0), ("k.i8", -100.0), ("k.u16", 6e4), ("k.i16", -3e4), ("k.u32", 4e9), ("k.i32", -2e9)];
    for (k, want) in numbers.into_iter().chain([("k.f32", 0.5), ("k.f64", 0.1), ("k.i64", -(2f64.powi(62)))]) {
        assert_eq!(get(k).as_f64(), Some(want), "{k}");
    }
    assert_eq!(get("k.strings").as_strings().unwrap(), ["a", "", "bcd"]);
    assert_eq!(get("k.ints").as_array().unwrap().to_i64(), [1, -2, 3]);
    assert_eq!(get("k.floats").as_array().unwrap().to_f64(), [0.5, 1.5]);
    let plain = g.entry("plain").unwrap().to_host(QUANTS).unwrap();
    assert_eq!(plain, HostTensor::from_f32(vec![2, 3], &[0., 1., 2., 3., 4., 5.]).unwrap());
}

#[test]
fn every_type_is_decoded_bit_for_bit() {
    let g = Gguf::parse(QUANTS).unwrap();
    let want = npz::read(DECODED).unwrap();
    assert_eq!(want.len(), 24);
    for (name, want) in want {
        let e = g.entry(&name).unwrap();
        let got = e.to_host(QUANTS).unwrap();
        let got = if got.dtype == DType::F32 { got } else { got.cast(DType::F32) };
        assert_eq!(got.shape, want.shape, "{name}");
        assert!(got.data == want.data, "{name}: {:?} is not {:?}", &got.to_f64()[..8], &want.to_f64()[..8]);
    }
}

#[test]
fn the_types_without_a_reference_decode() {
    // Q8_1 and Q8_K are formats of intermediate results, which the Python package does not decode.
    let mut b = vec![0, 0x40, 0, 0]; // scale 2.0, sum
    b.extend((0..32).map(|i| (i - 16) as u8));
    let t = decode(Kind::Q8_1, &[32], &b).unwrap();
    assert_eq!(t.to_f64(), (0..32).map(|i| f64::from(2 * (i - 16))).collect::<Vec<_>>());
    let mut b = 0.5f32.to_le_bytes().to_vec();
    b.extend((0..256).map(|i| (i - 128) as u8));
    b.extend([9; 32]);
    let t = decode(Kind::Q8_K, &[256], &b).unwrap();
    assert_eq!(t.to_f64(), (0..256).map(|i| f64::from(i - 128) / 2.0).collect::<Vec<_>>());
}

#[test]
fn files_round_trip() {
    let g = Gguf::parse(QUANTS).unwrap();
    let metadata: Vec<_> = g.metadata.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
    let data: Vec<_> = g
        .entries
        .iter()
        .map(|e| Data { name: &e.name, kind: e.kind, shape: &e.shape, bytes: e.bytes(QUANTS).unwrap() })
        .collect();
    let file = write(&metadata, &data).unwrap();
    let again = Gguf::parse(&file).unwrap();
    assert_eq!(again.metadata, g.metadata);
    for (a, b) in again.entries.iter().zip(&g.entries) {
        assert_eq!((&a.name, a.kind, &a.shape), (&b.name, b.kind, &b.shape));
        assert_eq!(a.bytes(&file).unwrap(), b.bytes(QUANTS).unwrap());
        assert_eq!(a.range.start % 32, 0);
    }
    assert!(write(&[], &[data[0], data[0]]).is_err());
    assert!(Gguf::parse(&write(&[], &[]).unwrap()).unwrap().entries.is_empty());
    let x: Vec<f32> = (0..64).map(|i| (i as f32 - 20.0) / 7.0).collect();
    let q = decode(Kind::Q8_0, &[2, 32], &quantize_q8_0(&x).unwrap()).unwrap();
    assert!(q.to_f64().iter().zip(&x).all(|(q, x)| (q - f64::from(*x)).abs() < 0.03));
}

#[test]
fn quantised_elements_are_near_what_they_were() {
    let mut state = 5u64;
    let mut uniform = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    // Sums of uniform numbers are nearly normal
    let normal: Vec<f32> = (0..4096).map(|_| (0..12).map(|_| uniform()).sum::<f32>() - 6.0).collect();
    let shifted: Vec<f32> = normal.iter().map(|x| 0.02 * (x + 2.5)).collect();
    let large: Vec<f32> = normal.iter().map(|x| x * 1000.0).collect();
    let off = |x: &[f32], kind: Kind, bytes: &[u8]| {
        let q = decode(kind, &[x.len() / 256, 256], bytes).unwrap().to_f64();
        let sum = |list: &mut dyn Iterator<Item = f64>| list.map(|v| v * v).sum::<f64>();
        let error = sum(&mut q.iter().zip(x).map(|(q, x)| q - f64::from(*x)));
        (error / sum(&mut x.iter().map(|x| f64::from(*x)))).sqrt()
    };
    // The errors of llama.cpp's blocks for the same elements (version 0.5.0 of the library in node-llama-cpp 3.22.1)
    for (x, theirs) in [(&normal, 0.069471), (&shifted, 0.029368), (&large, 0.069480)] {
        let (k, plain) =
            (off(x, Kind::Q4_K, &quantize_q4_k(x).unwrap()), off(x, Kind::Q4_0, &quantize_q4_0(x).unwrap()));
        assert!(k < theirs && k < 0.9 * plain, "{k} in Q4_K, {theirs} in llama.cpp's, {plain} in Q4_0");
    }
    // Sixteen even steps from a minimum are what the format has
    let even: Vec<f32> = (0..256).map(|i| (i * 7 % 16) as f32 * 0.25 - 1.5).collect();
    assert!(off(&even, Kind::Q4_K, &quantize_q4_k(&even).unwrap()) < 4e-3);
    let same: Vec<f32> = (0..256).map(|i| if i < 128 { 0.0 } else { -3.0 }).collect();
    assert!(off(&same, Kind::Q4_K, &quantize_q4_k(&same).unwrap()) < 1e-3);
    let positive = vec![2.0f32; 256];
    assert!(off(&positive, Kind::Q4_K, &quantize_q4_k(&positive).unwrap()) < 1e-3);
    assert_eq!(quantize_q4_k(&vec![f32::NAN; 256]).unwrap().len(), 144);
    for bad in [quantize_q4_k(&normal[..128]), quantize_q8_0(&normal[..31]), quantize_q4_0(&normal[..33])] {
        assert_eq!(bad.unwrap_err().code(), "E_FORMAT");
    }
}

#[test]
fn every_truncation_is_an_error() {
    // The padding of the last tensor may be missing.
    let end = Gguf::parse(QUANTS).unwrap().entries.iter().map(|e| e.range.end).max().unwrap() as usize;
    for n in 0..end {
        assert!(Gguf::parse(&QUANTS[..n]).is_err(), "at {n}");
    }
    let header = Gguf::parse(QUANTS).unwrap().entries.iter().map(|e| e.range.start).min().unwrap() as usize;
    assert_eq!(Gguf::parse_header(&QUANTS[..header], QUANTS.len() as u64).unwrap(), Gguf::parse(QUANTS).unwrap());
}

#[test]
fn hostile_files_are_errors() {
    let u32s = |v: u32| Value::Scalar(DType::U32, Scalar::Int(v.into()));
    let base = |a: u32| {
        let t = Data { name: "t", kind: Kind::F32, shape: &[4], bytes: &[0; 16] };
        write(&[("general.alignment", u32s(64)), ("z", u32s(a))], &[t]).unwrap()
    };
    let coarse = write(&[("general.alignment", u32s(1 << 30))], &[]).unwrap_err();
    assert!(coarse.to_string().contains("alignment"), "what the reader refuses is not written either: {coarse}");
    let good = base(0);
    assert!(Gguf::parse(&good).is_ok());
    let find = |needle: &[u8]| good.windows(needle.len()).position(|w| w == needle).unwrap();
    let patch = |at: usize, bytes: &[u8]| {
        let mut f = good.clone();
        f[at..at + bytes.len()].copy_from_slice(bytes);
        Gguf::parse(&f).unwrap_err()
    };
    patch(0, b"GGML");
    assert_eq!(patch(4, &[0, 0, 0, 3]).code(), "E_UNSUPPORTED");
    assert_eq!(patch(4, &[1, 0, 0, 0]).code(), "E_UNSUPPORTED");
    patch(8, &u64::MAX.to_le_bytes());
    patch(16, &(u64::MAX / 2).to_le_bytes());
    let alignment = find(b"general.alignment") + 21;
    for a in [0u32, 3, 1 << 30] {
        patch(alignment, &a.to_le_bytes());
    }
    patch(24, &u64::MAX.to_le_bytes()); // the length of a key
    let t = find(b"\x01\0\0\0\0\0\0\0t") + 9;
    patch(t, &99u32.to_le_bytes()); // rank
    patch(t + 4, &u64::MAX.to_le_bytes()); // a dimension
    patch(t + 4, &(1u64 << 62).to_le_bytes());
    patch(t + 12, &4u32.to_le_bytes()); // a type that was removed from ggml
    patch(t + 12, &2u32.to_le_bytes()); // four elements are less than a block
    patch(t + 16, &64u64.to_le_bytes()); // outside the file
    patch(t + 16, &4u64.to_le_bytes()); // not aligned
    patch(t + 16, &(u64::MAX - 63).to_le_bytes());
}

#[test]
fn mutations_never_panic() {
    mutate(QUANTS, 3_000, |m| {
        if let Ok(g) = Gguf::parse(m) {
            g.entries.iter().for_each(|e| drop(e.to_host(m).unwrap()));
        }
    });
}

#[test]
fn graphs_give_the_same_elements() {
    use crate::device::EvalDevice;
    use crate::engine::Engine;
    use crate::tensor::Session;
    let session = Session::new();
    let mut engine = Engine::new(Box::new(EvalDevice::default()));
    let want = npz::read(DECODED).unwrap();
    for (name, t) in tensors(&session, &QUANTS.to_vec().into()).unwrap() {
        let Some(want) = want.iter().find(|w| w.0 == name) else { continue };
        let t = t.cast(DType::F32).unwrap();
        let pending = engine.start(&mut session.state(), &[t.root()]).unwrap();
        engine.finish(&mut session.state(), pending).unwrap();
        let (ticket, dtype, _) = engine.read(&mut session.state(), t.root()).unwrap();
        let got = engine.poll(ticket, dtype).unwrap().unwrap();
        assert!(got == want.1.data, "{name}");
    }
}
