//! Tests with files that PyTorch wrote (`tests/fixtures/make_torch.py`), and with damaged ones.

use super::*;
use crate::io::npz;
use crate::io::testing::mutate;

const ZIP: &[u8] = include_bytes!("../../../../tests/fixtures/io/torch_zip.pt");
const OLD: &[u8] = include_bytes!("../../../../tests/fixtures/io/torch_old.pt");
const WANT: &[u8] = include_bytes!("../../../../tests/fixtures/io/torch.npz");
const CODE: &[u8] = include_bytes!("../../../../tests/fixtures/io/torch_code.pt");

#[test]
fn checkpoints_of_both_formats_are_read() {
    let want = npz::read(WANT).unwrap();
    for (file, more) in [(ZIP, 1), (OLD, 0)] {
        let t = Torch::parse(file).unwrap();
        assert_eq!(t.entries.len(), want.len() + more);
        for (name, want) in &want {
            let e = t.get(name).unwrap_or_else(|| panic!("{name}"));
            let got = t.to_host(file, e).unwrap();
            let got = if name == "brain" { got.cast(DType::F32) } else { got };
            assert_eq!(&got, want, "{name}");
        }
    }
    let t = Torch::parse(ZIP).unwrap();
    let e = t.get("u16").unwrap();
    assert_eq!((e.dtype(), t.to_host(ZIP, e).unwrap().to_i64()), (DType::U16, vec![60000]));
    assert_eq!(t.get("brain").unwrap().dtype(), DType::BF16);
}

#[test]
fn tensors_share_what_the_file_shares() {
    let session = Session::new();
    let all = tensors(&session, &ZIP.to_vec().into()).unwrap();
    let get = |name: &str| &all.iter().find(|t| t.0 == name).unwrap().1;
    assert_eq!(get("shared.0").root(), get("shared.4").root());
    assert_eq!(get("shared.1").shape(), [6, 4]);
    assert_eq!(get("model.0.weight").shape(), [3, 2, 3, 3]);
}

#[test]
fn code_is_refused_by_name() {
    let e = Torch::parse(CODE).unwrap_err();
    assert_eq!(e.code(), "E_UNSUPPORTED");
    assert!(e.to_string().contains("print"), "{e}");
}

/// A file of the old format around the pickle of an object.
fn old(pickle: &[u8]) -> Result<Torch> {
    let mut f = vec![0x80, 2, 0x8a, 10];
    f.extend(OLD_MAGIC);
    f.extend(b".\x80\x02M\xe9\x03.\x80\x02}.");
    f.extend(pickle);
    f.extend(b"\x80\x02]X\x01\0\0\0ka."); // ["k"]
    f.extend(4u64.to_le_bytes());
    f.extend([0; 16]);
    Torch::parse(&f)
}

/// The pickle of a tensor that views the storage `k` of four f32.
fn tensor(offset: u8, size: &[u8], stride: &[u8]) -> Vec<u8> {
    let mut p =
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\nFloatStorage\nU\x01kU\x03cpuK\x04NtQK"
            .to_vec();
    p.push(offset);
    for list in [size, stride] {
        p.push(b'(');
        list.iter().for_each(|&n| p.extend([b'K', n]));
        p.push(b't');
    }
    p.extend(b"\x89NtR.");
    p
}

#[test]
fn hostile_pickles_are_errors() {
    let ok = old(&tensor(0, &[2, 2], &[2, 1])).unwrap();
    assert_eq!((ok.entries[0].name.as_str(), ok.entries[0].shape()), ("tensor", &[2usize, 2][..]));
    assert!(old(&tensor(1, &[3], &[1])).is_ok());
    assert!(old(&tensor(2, &[3], &[1])).is_err(), "outside");
    assert!(old(&tensor(0, &[2, 2], &[4, 1])).is_err(), "outside by stride");
    assert!(old(&tensor(0, &[2, 2], &[1])).is_err(), "ranks differ");
    assert!(old(&tensor(0, &[255, 255, 255, 255], &[0, 0, 0, 0])).is_err(), "16 GB of one element");
    assert!(old(&tensor(0, &[0, 9], &[99, 99])).is_ok(), "nothing lies anywhere");
    for (what, p) in [
        ("a call", &b"cos\nsystem\n(U\x02lstR."[..]),
        ("stack global", b"\x8c\x02os\x8c\x06system\x93."),
        ("new object", b"ccollections\nOrderedDict\n)\x81."),
        ("instance", b"(icollections\nOrderedDict\n."),
        ("extension", b"\x82\x01."),
        ("state of a list", b"]}b."),
        ("empty", b"."),
        ("no mark", b"t."),
        ("memo", b"h\x09."),
        ("left over", b"NN."),
        ("odd items", b"}(Nu."),
        ("a long text", b"X\xff\xff\xff\xff"),
        ("a long text 8", b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff"),
        ("another persistent id", b"U\x03abcQ."),
    ] {
        assert!(old(p).is_err(), "{what}");
    }
    // A list that contains itself, and tuples that double in size with each level.
    assert!(old(b"]q\0h\0a.").is_err());
    let doubled = [b"N".as_slice(), &b"q\0h\0\x86".repeat(40), b"."].concat();
    assert!(old(&doubled).is_err());
    let nested = [b"]".repeat(200), b"a".repeat(199), b".".to_vec()].concat();
    assert!(old(&nested).is_err());
}

#[test]
fn truncations_and_mutations_never_panic() {
    for file in [ZIP, OLD] {
        for n in (0..file.len()).step_by(7) {
            assert!(Torch::parse(&file[..n]).is_err(), "at {n}");
        }
        mutate(file, 4_000, |m| {
            if let Ok(t) = Torch::parse(m) {
                t.entries.iter().for_each(|e| drop(t.to_host(m, e).unwrap()));
            }
        });
    }
}
