//! Language models in several files: a split GGUF file gives what the whole one does, whichever part is named, and what is missing is refused.

use gradloom::llm::LanguageModel;
use gradloom::{DType, Error, NativeHost};
use gradloom_core::dtype::Scalar;
use gradloom_core::io::gguf::{self, Data, Gguf, Value};
use gradloom_tests::here;
use std::path::{Path, PathBuf};

fn whole(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/llm").join(name);
    std::fs::read(path).expect("a model")
}

/// The parts of a file, as llama.cpp's `llama-gguf-split` has them.
fn parts(file: &[u8], count: usize) -> Vec<Vec<u8>> {
    let index = Gguf::parse(file).expect("GGUF");
    let own = |i: usize| {
        let number = |dtype: DType, n: usize| Value::Scalar(dtype, Scalar::Int(n as i64));
        let mut metadata = match i {
            0 => index.metadata.iter().map(|(k, v)| (k.as_str(), v.clone())).collect(),
            _ => Vec::new(),
        };
        metadata.push(("split.no", number(DType::U16, i)));
        metadata.push(("split.count", number(DType::U16, count)));
        metadata.push(("split.tensors.count", number(DType::I32, index.entries.len())));
        let mine = index.entries.iter().enumerate().filter(|(at, _)| at % count == i);
        let data: Vec<Data<'_>> = mine
            .map(|(_, e)| {
                let bytes = e.bytes(file).expect("bytes");
                Data { name: &e.name, kind: e.kind, shape: &e.shape, bytes }
            })
            .collect();
        gguf::write(&metadata, &data).expect("a part")
    };
    (0..count).map(own).collect()
}

fn write(folder: &Path, stem: &str, parts: &[Vec<u8>]) -> Vec<PathBuf> {
    let name = |i: usize| folder.join(format!("{stem}-{:05}-of-{:05}.gguf", i + 1, parts.len()));
    let one = |(i, part): (usize, &Vec<u8>)| {
        std::fs::write(name(i), part).expect("written");
        name(i)
    };
    parts.iter().enumerate().map(one).collect()
}

fn logits(path: &Path) -> Option<Result<Vec<f32>, Error>> {
    let device = here::device("cpu", gradloom::open("cpu", 2))?;
    let mut m = match LanguageModel::load(path, device, NativeHost::without_cache(), 64) {
        Ok(m) => m,
        Err(e) => return Some(Err(e)),
    };
    m.begin(&[2, 9, 14, 3]).expect("reads");
    Some(Ok(m.logits().expect("logits")))
}

#[test]
fn a_split_model_is_the_whole_one() {
    let folder = std::env::temp_dir().join(format!("gradloom-split-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    // the second has a table of rotations, which is a tensor
    for name in ["llama.gguf", "llama3.gguf"] {
        let file = whole(name);
        std::fs::write(folder.join("whole.gguf"), &file).expect("written");
        let Some(want) = logits(&folder.join("whole.gguf")) else { return };
        let want = want.expect("a model");
        for path in write(&folder, "split", &parts(&file, 3)) {
            assert_eq!(logits(&path).expect("a device").expect("a model"), want, "{name} {}", path.display());
        }
    }
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let folder = std::env::temp_dir().join(format!("gradloom-parts-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let all = parts(&whole("llama.gguf"), 2);
    let refused = |path: &Path, what: &str| {
        let Some(got) = logits(path) else { return };
        let e = got.err().unwrap_or_else(|| panic!("{}: it is not refused", path.display()));
        assert!(e.to_string().contains(what), "{e}");
    };
    std::fs::write(folder.join("alone.gguf"), &all[0]).expect("written");
    refused(&folder.join("alone.gguf"), "part 1 of 2");
    let list = write(&folder, "twice", &[all[0].clone(), all[0].clone()]);
    refused(&list[0], "file 1 of 2 comes as file 2");
    let list = write(&folder, "other", &[all[0].clone(), parts(&whole("qwen2.gguf"), 3)[1].clone()]);
    refused(&list[1], "of 3 comes as");
    let few = |mut f: Vec<u8>| {
        // another name for a tensor that no model does without
        let at = f.windows(11).position(|w| w == b"token_embd.").expect("a name");
        f[at..at + 11].copy_from_slice(b"token_xmbd.");
        f
    };
    let [first, second] = [all[0].clone(), all[1].clone()];
    let has = |f: &[u8]| f.windows(11).any(|w| w == b"token_embd.");
    let list = match has(&second) {
        true => write(&folder, "few", &[first, few(second)]),
        false => write(&folder, "few", &[few(first), second]),
    };
    refused(&list[0], "token_embd");
    std::fs::remove_file(&list[1]).expect("removed");
    refused(&list[0], "few-00002-of-00002");
    std::fs::remove_dir_all(&folder).expect("removed");
}
