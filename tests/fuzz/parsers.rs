//! Every parser on mutated files: nothing panics, hangs or allocates more than 4 times the file and 64 MiB.

use crate::findings::{Run, corpus};
use crate::memory::Asked;
use gradloom::io::gguf::Gguf;
use gradloom::io::json::Json;
use gradloom::io::onnx::{Model, NoExternalData, inspect};
use gradloom::io::safetensors::SafeTensors;
use gradloom::io::torch::Torch;
use gradloom::io::zip::Zip;
use gradloom::io::{HostTensor, images, npy, npz, safetensors, tflite};
use gradloom::target::{Isa, Target};
use gradloom::text::UNICODE;
use gradloom::{NativeHost, OnnxModel, image_folder};
use gradloom_core::device::NullDevice;
use gradloom_core::engine::Engine;
use gradloom_core::tensor::{IrKernel, Session, Tensor};
// those of the core: natively, panics come back as errors
use gradloom_core::text::{ChatOptions, ChatTemplate, Tokenizer};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Files of each parser in an ordinary run.
const ROUNDS: u64 = 1500;
/// Bytes that reading any file may take, besides a multiple of its length.
const FREE_BYTES: usize = 64 << 20;
/// Far longer than any of these files takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

struct Parser {
    name: &'static str,
    run: fn(&[u8]),
    /// Good files, below `tests/`; of a zip file that is named `*`, the small models in it.
    seeds: &'static [&'static str],
}

impl Parser {
    /// What a run may ask for besides a multiple of the file. A graph that is built is many small nodes; a picture has as
    /// many pixels as its head says, up to a limit.
    fn free_bytes(&self) -> usize {
        match self.name {
            "graphs" | "pictures" => 16 * FREE_BYTES,
            _ => FREE_BYTES,
        }
    }

    fn good_files(&self) -> Vec<Vec<u8>> {
        let read = |path: &str| std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path);
        let mut all = Vec::new();
        for path in self.seeds {
            let Some(path) = path.strip_prefix('*') else {
                all.push(read(path));
                continue;
            };
            let file = read(path);
            let zip = Zip::parse(&file).expect(path);
            let models = zip.entries().iter().filter(|e| e.name.ends_with("model.onnx"));
            let models = models.map(|e| zip.read(e).expect(path).into_owned());
            all.extend(models.filter(|m| m.len() < 2000));
        }
        all
    }
}

const PARSERS: [Parser; 18] = [
    Parser { name: "safetensors", run: safetensors_file, seeds: &["fixtures/io/small.safetensors"] },
    Parser { name: "shards", run: |f| drop(safetensors::shards(f)), seeds: &["fixtures/fuzz/shards.json"] },
    Parser { name: "json", run: |f| drop(Json::parse(f)), seeds: &["models/models.json", "models/magika/meta.json"] },
    Parser { name: "gguf", run: gguf_file, seeds: &["fixtures/io/quants.gguf"] },
    Parser {
        name: "npy",
        run: |f| drop(npy::read(f)),
        seeds: &["fixtures/io/c_f32.npy", "fixtures/io/fortran_i16_v2.npy", "fixtures/io/big_f64_v3.npy"],
    },
    Parser { name: "npz", run: |f| drop(npz::read(f)), seeds: &["fixtures/io/stored.npz", "fixtures/io/packed.npz"] },
    Parser { name: "torch", run: torch_file, seeds: &["fixtures/io/torch_zip.pt", "fixtures/io/torch_old.pt"] },
    Parser { name: "onnx", run: |f| drop(Model::parse(f.to_vec())), seeds: &["fixtures/io/parts.onnx"] },
    Parser {
        name: "tokenizer",
        run: tokenizer_file,
        seeds: &[
            "fixtures/text/llama3.json",
            "fixtures/text/llama.json",
            "fixtures/text/bert.json",
            "fixtures/text/unigram.json",
            "fixtures/text/prefix.json",
            "fixtures/text/sentence.json",
        ],
    },
    Parser { name: "chat", run: chat_file, seeds: &["fixtures/fuzz/tokenizer_config.json"] },
    Parser {
        name: "tflite",
        run: |f| drop(tflite::to_onnx(f)),
        seeds: &["models/selfie_segmentation/model.tflite", "fixtures/tflite/pieces_channel.tflite"],
    },
    Parser { name: "zip", run: zip_file, seeds: &["fixtures/io/stored.npz", "fixtures/io/packed.npz"] },
    Parser { name: "idx", run: |f| drop(images::idx(f)), seeds: &["fixtures/fuzz/tiny.idx"] },
    Parser { name: "cifar", run: cifar_file, seeds: &["fixtures/fuzz/tiny_cifar.bin"] },
    Parser {
        name: "pictures",
        run: |f| drop(image_folder::decode(f)),
        seeds: &[
            "fixtures/images/bird/palette.png",
            "fixtures/images/cat/deep.png",
            "fixtures/images/cat/progressive.jpg",
        ],
    },
    // where a model says that its weights are
    Parser {
        name: "external",
        run: external_data,
        seeds: &[
            "fixtures/fuzz/external.txt",
            "fixtures/fuzz/external/above_inside.txt",
            "fixtures/fuzz/external/link.txt",
            "fixtures/fuzz/external/across_the_end.txt",
            "fixtures/fuzz/external/sum_wraps.txt",
        ],
    },
    // kernels of users: what is taken is compiled for several kinds of devices
    Parser {
        name: "kernels",
        run: kernel_text,
        seeds: &["fixtures/kernels/softmax.ir", "fixtures/kernels/matmul.ir", "fixtures/kernels/lookup.ir"],
    },
    // operators and their attributes: the whole graph is built, with the least sizes
    Parser {
        name: "graphs",
        run: graph_file,
        seeds: &["*fixtures/onnx/contrib.zip", "*fixtures/onnx/dynamic.zip", "*fixtures/onnx/slice.zip"],
    },
];

fn zip_file(f: &[u8]) {
    if let Ok(zip) = Zip::parse(f) {
        zip.entries().iter().for_each(|e| drop(zip.read(e)));
    }
}

fn cifar_file(f: &[u8]) {
    drop(images::cifar(f, images::Cifar::Ten));
    drop(images::cifar(f, images::Cifar::Hundred));
}

fn kernel_text(f: &[u8]) {
    let Ok(kernel) = IrKernel::parse("mine", &String::from_utf8_lossy(f)) else { return };
    for target in [Target::eval(), Target::x86(Isa::Avx2, 1), Target::wasm(false, 1), Target::wgsl("webgpu")] {
        let s = Session::new();
        let zeros = kernel.params()[1..].iter().map(|&(dt, len)| Tensor::empty(&s, dt, &[len]));
        let Ok(zeros) = zeros.collect::<gradloom::Result<Vec<Tensor>>>() else { return };
        let shape = [kernel.params()[0].1];
        let Ok(y) = kernel.launch(&s, &zeros.iter().collect::<Vec<_>>(), &shape) else { return };
        // no memory is taken and nothing runs: the kernel is scheduled, optimised and rendered
        let mut engine = Engine::new(Box::new(NullDevice::new(target)));
        drop(engine.start(&mut s.state(), &[y.root()]));
    }
}

fn graph_file(f: &[u8]) {
    drop(inspect(f.to_vec(), Arc::new(NoExternalData), &BTreeMap::new()));
}

/// A field of a message: its number, and bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let (mut out, mut n) = (vec![number << 3 | 2], bytes.len());
    while n > 127 {
        out.push(n as u8 | 128);
        n >>= 7;
    }
    out.push(n as u8);
    [&out, bytes].concat()
}

/// A model whose result is a constant of four floats; the lines of the file say where they are: location, offset, length. The
/// bytes of the result, with those of the files of the model's folder.
fn external_bytes(f: &[u8]) -> (gradloom::Result<Vec<u8>>, [Vec<u8>; 2]) {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    let weights: Vec<u8> = (0..64).collect();
    let root = ROOT.get_or_init(|| {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("external");
        std::fs::create_dir_all(root.join("model/weights")).unwrap();
        std::fs::create_dir_all(root.join("outside")).unwrap();
        std::fs::write(root.join("model/weights/a.bin"), &weights).unwrap();
        std::fs::write(root.join("outside/secret.bin"), [0xee; 64]).unwrap();
        // it may be there already
        #[cfg(unix)]
        drop(std::os::unix::fs::symlink("../outside/secret.bin", root.join("model/link.bin")));
        root
    });
    let f = f.strip_suffix(b"\n").unwrap_or(f);
    let pairs = ["location", "offset", "length"].iter().zip(f.splitn(3, |&c| c == b'\n'));
    let pairs = pairs.flat_map(|(k, v)| field(13, &[field(1, k.as_bytes()), field(2, v)].concat()));
    // four floats, external
    let tensor = [&[0x08, 4, 0x10, 1, 0x70, 1][..], &field(8, b"w"), &pairs.collect::<Vec<u8>>()].concat();
    let node = [field(1, b"w"), field(2, b"y"), field(4, b"Identity")].concat();
    let graph = [field(1, &node), field(5, &tensor), field(12, &field(1, b"y"))].concat();
    let model = [&[0x08, 9][..], &field(8, &[0x10, 17]), &field(7, &graph)].concat();
    let path = root.join("model/model.onnx");
    std::fs::write(&path, &model).unwrap();
    let run = || -> gradloom::Result<HostTensor> {
        let model = gradloom::model::parse(&path)?;
        let mut model = OnnxModel::with_host(model, gradloom::open("eval", 1)?, NativeHost::without_cache());
        Ok(model.run(&[])?.swap_remove(0).1)
    };
    (run().map(|t| t.data), [weights, model])
}

/// What comes is from the model's folder, or nothing does.
fn external_data(f: &[u8]) {
    let (got, own) = external_bytes(f);
    assert!(!matches!(got, Err(gradloom::Error::Internal(_))), "{got:?}");
    if let Ok(got) = got {
        assert!(own.iter().any(|file| file.windows(16).any(|w| w == got)), "bytes from elsewhere: {got:?}");
    }
}

fn safetensors_file(f: &[u8]) {
    if let Ok(index) = SafeTensors::parse(f) {
        index.entries.iter().for_each(|e| drop(e.to_host(f).expect("what was checked is there")));
    }
}

fn gguf_file(f: &[u8]) {
    let Ok(index) = Gguf::parse(f) else { return };
    let _ = Tokenizer::from_gguf(&index, UNICODE);
    index.entries.iter().for_each(|e| drop(e.to_host(f).expect("what was checked is there")));
}

fn torch_file(f: &[u8]) {
    if let Ok(index) = Torch::parse(f) {
        index.entries.iter().for_each(|e| drop(index.to_host(f, e).expect("what was checked is there")));
    }
}

fn tokenizer_file(f: &[u8]) {
    if let Ok(t) = Tokenizer::from_json(f, UNICODE) {
        let ids = t.encode("Hello <s> wörld, 123 the\u{3000}café Word!  don't").unwrap_or_default();
        let _ = t.decode(&ids);
    }
}

fn chat_file(f: &[u8]) {
    if let Ok(t) = ChatTemplate::from_config(f, None) {
        let messages =
            br#"[{"role":"system","content":"a"},{"role":"user","content":"b"},{"role":"assistant","content":"c"}]"#;
        let messages = Json::parse(messages).expect("messages are JSON");
        let _ = t.apply(&messages, &ChatOptions::default());
    }
}

/// xorshift64*
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// One to eight changes of a file; pieces of others may come in.
fn mutate(r: &mut Random, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut f = seeds[r.below(seeds.len())].clone();
    for _ in 0..1 + r.below(8) {
        if f.is_empty() {
            break;
        }
        let at = r.below(f.len());
        let piece = at..(at + 1 + r.below(32)).min(f.len());
        match r.below(12) {
            0 => f[at] ^= 1 << r.below(8),
            1 => f[at] = r.next() as u8,
            2 => drop(f.drain(piece)),
            3 => {
                let copy = f[piece].to_vec();
                f.splice(at..at, copy.repeat(1 + r.below(3)));
            }
            4 => f.truncate(at),
            // a number that is at the edge of something
            5 | 6 => {
                let wide = 1 << r.below(4);
                let edges =
                    [0, 1, u64::MAX, u64::MAX >> 1, 1 << 31, 1 << 32, 1 << 62, f.len() as u64, f.len() as u64 + 1];
                let v = edges[r.below(edges.len())].to_le_bytes();
                let end = (at + wide).min(f.len());
                f[at..end].copy_from_slice(&v[..end - at]);
            }
            // a digit, a bracket, a quote
            7 => {
                let texts: [&[u8]; 8] = [b"9", b"-", b"99999999999", b"[", b"]", b"\"", b"{", b"e9"];
                f.splice(at..at, texts[r.below(texts.len())].iter().copied());
            }
            8 => {
                let other = &seeds[r.below(seeds.len())];
                let from = r.below(other.len());
                let to = (from + r.below(64)).min(other.len());
                f.splice(at..at, other[from..to].iter().copied());
            }
            // a letter or digit becomes another: texts stay well-formed
            9 | 10 => {
                let near = (at..f.len()).find(|&i| f[i].is_ascii_alphanumeric()).unwrap_or(at);
                f[near] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[r.below(62)];
            }
            // a piece goes elsewhere
            _ => {
                let cut: Vec<u8> = f.drain(piece).collect();
                let to = r.below(f.len() + 1);
                f.splice(to..to, cut);
            }
        }
    }
    f
}

/// Why a file is a finding.
fn finding(p: &Parser, file: &[u8]) -> Option<String> {
    let asked = Asked::now();
    let start = Instant::now();
    if catch_unwind(AssertUnwindSafe(|| (p.run)(file))).is_err() {
        return Some("a panic".into());
    }
    // all that was ever asked for, which is more than was ever held
    let bytes = asked.bytes();
    if bytes > p.free_bytes() + file.len() * 4 {
        return Some(format!("{bytes} bytes for a file of {}", file.len()));
    }
    let time = start.elapsed();
    (time > PATIENCE).then(|| format!("{time:?}"))
}

#[test]
fn parsers_survive_mutated_files() {
    let good = external_bytes(b"weights/a.bin\n16\n16\n").0.unwrap();
    assert_eq!(good, (16..32).collect::<Vec<u8>>());
    for refused in ["../outside/secret.bin", "link.bin", "weights/b.bin", "weights"] {
        assert!(external_bytes(format!("{refused}\n0\n16\n").as_bytes()).0.is_err(), "{refused}");
    }
    let mut whole = Run::new("parsers", ROUNDS);
    let mut files = 0;
    for (i, p) in PARSERS.iter().enumerate() {
        let seeds = p.good_files();
        for file in corpus(p.name) {
            let found = finding(p, &std::fs::read(&file).unwrap());
            assert_eq!(found, None, "{} on {}", p.name, file.display());
        }
        let mut run = whole.part(p.name, 1.0 / (PARSERS.len() - i) as f64);
        let mut random = Random(run.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for round in 0.. {
            if !run.goes_on(round) {
                break;
            }
            files += 1;
            let file = mutate(&mut random, &seeds);
            if let Some(what) = finding(p, &file) {
                run.found(&format!("{}-{round}", run.seed), &file, &what);
            }
        }
        whole.join(run);
    }
    whole.end(&format!("{files} files of {} parsers", PARSERS.len()));
}
