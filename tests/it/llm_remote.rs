//! Language models whose graphs are made in a session without a device, as the wasm module of pages makes them.

use gradloom::dtype::Scalar;
use gradloom::engine::{Bytes, Replay};
use gradloom::io::gguf::{self, Data, Gguf, Kind};
use gradloom::io::json::Json;
use gradloom::io::safetensors;
use gradloom::llm::{
    Buffer, Graph, Input, LAST, POSITION, PackGraph, Pooler, Remote, RemoteEncoder, USED, Wanted, chunks, packs,
};
use gradloom::tensor::wire;
use gradloom::text::{self, Encoding, Tokenizer};
use gradloom::{DType, Error, Runtime, Tensor};
use std::collections::BTreeMap;
use std::path::Path;

struct Elsewhere<G> {
    rt: Runtime,
    buffers: BTreeMap<u32, Tensor>,
    plans: BTreeMap<usize, (G, Replay)>,
}

impl<G> Elsewhere<G> {
    fn new() -> Elsewhere<G> {
        let rt = Runtime::open("cpu", 1).expect("a device");
        Elsewhere { rt, buffers: BTreeMap::new(), plans: BTreeMap::new() }
    }

    fn take(&mut self, list: Vec<Buffer>) {
        for b in list {
            let bytes = if b.bytes.is_empty() { vec![0; b.len * b.dtype.size()] } else { b.bytes };
            let t = Tensor::from_bytes(self.rt.session(), b.dtype, &[b.len], Bytes::new(bytes)).expect("a buffer");
            assert!(self.buffers.insert(b.number, t).is_none(), "a buffer came twice");
        }
    }

    fn replay(&mut self, bytes: &[u8], inputs: &[Input]) -> Replay {
        let s = self.rt.session().clone();
        let input = |i: &Input| match i {
            Input::Buffer(b) => self.buffers[b].clone(),
            Input::Variable(name, min, max) => {
                Tensor::variable(&s, name, *min as i32, *max as i32).expect("a variable")
            }
        };
        let inputs: Vec<Tensor> = inputs.iter().map(input).collect();
        let outs = wire::read(&s, bytes, &inputs).expect("a graph that was written");
        self.rt.realize(&outs.iter().collect::<Vec<_>>()).expect("a plan")
    }
}

impl Elsewhere<Graph> {
    fn plan(&mut self, model: &mut Remote, n: usize) {
        let mut g = model.graph(n, Wanted::Next).expect("a graph");
        self.take(std::mem::take(&mut g.buffers));
        let replay = self.replay(&g.bytes, &g.inputs);
        self.plans.insert(n, (g, replay));
    }

    /// Reads tokens; the most likely one that follows.
    fn read(&mut self, model: &mut Remote, tokens: &[u32], at: &mut usize) -> u32 {
        let mut rest = tokens;
        let mut best = 0;
        let (lengths, capacity) = model.decoder().map(|d| (d.lengths(), d.capacity())).expect("built");
        for (n, part) in chunks(lengths, tokens.len(), *at, capacity) {
            let (now, later) = rest.split_at(part);
            self.rt.engine().set_var(POSITION, Scalar::Int(*at as i64));
            self.rt.engine().set_var(LAST, Scalar::Int(part as i64 - 1));
            let first = !self.plans.contains_key(&n);
            if first {
                self.plan(model, n);
            }
            let (g, replay) = &self.plans[&n];
            let mut ids: Vec<u8> = now.iter().flat_map(|t| (*t as i32).to_le_bytes()).collect();
            ids.resize(4 * n, 0);
            self.rt.write(&self.buffers[&g.tokens].clone(), &ids).expect("written");
            self.rt.replay(&replay.clone()).expect("a run");
            let t = self.buffers[&g.best.expect("logits")].clone();
            let got = self.rt.fetch(&t).expect("read");
            best = u32::from_le_bytes([got[0], got[1], got[2], got[3]]);
            (*at, rest) = (*at + part, later);
        }
        best
    }
}

#[test]
fn a_model_without_a_device_chooses_what_transformers_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/llm");
    for name in ["llama", "llama3"] {
        let file = std::fs::read(folder.join(format!("{name}.gguf"))).expect("a file");
        let expected = std::fs::read(folder.join(name).join("expected.json")).expect("a file");
        let expected = Json::parse(&expected).expect("JSON");
        let ids = |key: &str| -> Vec<u32> {
            let list = expected.get(key).and_then(Json::as_array).expect("a list");
            list.iter().map(|i| i.as_u64().expect("a token") as u32).collect()
        };
        let (prompt, want) = (ids("prompt"), ids("tokens"));
        let mut model = Remote::new(&file, file.len() as u64).expect("a model");
        assert!(matches!(model.graph(1, Wanted::Next), Err(Error::Model { .. })), "there are no weights yet");
        let mut there: Elsewhere<Graph> = Elsewhere::new();
        let ranges: Vec<_> = model.index().entries.iter().map(|e| e.range.clone()).collect();
        assert!(model.weight(0, vec![0; 3]).is_err());
        for (i, r) in ranges.iter().enumerate() {
            let buffers = model.weight(i, file[r.start as usize..r.end as usize].to_vec()).expect("a weight");
            assert!(buffers.iter().all(|b| b.len * b.dtype.size() == b.bytes.len() && b.dtype != DType::Void));
            there.take(buffers);
        }
        model.build(128, DType::F32).expect("a model");
        let (mut at, mut got) = (0, Vec::new());
        got.push(there.read(&mut model, &prompt, &mut at));
        let mut programs = Vec::new();
        for _ in 1..60 {
            let last = *got.last().expect("a token");
            got.push(there.read(&mut model, &[last], &mut at));
            programs.push(there.rt.counters().programs);
        }
        assert_eq!(got, want[..60], "{name}");
        assert_eq!(programs[1], programs[58], "{name}: kernels were compiled for later tokens");
    }
}

impl Elsewhere<PackGraph> {
    /// The values of texts, all of which are in one pack of `n` tokens.
    fn values(&mut self, model: &mut RemoteEncoder, n: usize, texts: &[&Encoding]) -> Vec<f32> {
        let i = model.encoder().and_then(|e| e.inputs(n, texts)).expect("inputs");
        self.rt.engine().set_var(USED, Scalar::Int(i.used as i64));
        if !self.plans.contains_key(&n) {
            let mut g = model.graph(n).expect("a graph");
            self.take(std::mem::take(&mut g.buffers));
            let replay = self.replay(&g.bytes, &g.inputs);
            self.plans.insert(n, (g, replay));
        }
        let (g, replay) = &self.plans[&n];
        let ints = |list: &[i32]| -> Vec<u8> { list.iter().flat_map(|i| i.to_le_bytes()).collect() };
        let shares: Vec<u8> = i.shares.iter().flat_map(|x| x.to_le_bytes()).collect();
        let all = [ints(&i.tokens), ints(&i.kinds), ints(&i.positions), ints(&i.texts), shares];
        for (number, bytes) in g.given.iter().zip(all) {
            self.rt.write(&self.buffers[number].clone(), &bytes).expect("written");
        }
        let (values, replay) = (self.buffers[&g.values].clone(), replay.clone());
        self.rt.replay(&replay).expect("a run");
        let bytes = self.rt.fetch(&values).expect("read");
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }
}

/// An encoder of a GGUF file or a folder, with all its weights, and its tokenizer.
fn encoder(there: &mut Elsewhere<PackGraph>, path: &Path) -> (RemoteEncoder, Tokenizer) {
    let read = |name: &str| std::fs::read(path.join(name)).expect("a file");
    let (mut model, file) = match path.is_dir() {
        true => {
            let pooler = match path.join("modules.json").exists() {
                true => Pooler::from_modules(&read("modules.json"), &|name| Ok(read(name))).expect("a pooler"),
                false => Pooler::default(),
            };
            let mut model = RemoteEncoder::from_config(&read("config.json"), pooler).expect("a configuration");
            let file = read("model.safetensors");
            model.part(&file, file.len() as u64, "model.safetensors").expect("a header");
            (model, file)
        }
        false => {
            let file = std::fs::read(path).expect("a file");
            (RemoteEncoder::new(&file, file.len() as u64).expect("a model"), file)
        }
    };
    assert!(model.encoder().is_err() && model.graph(16).is_err(), "there are no weights yet");
    for (i, (_, r)) in model.places().to_vec().into_iter().enumerate() {
        let buffers = model.weight(i, file[r.start as usize..r.end as usize].to_vec()).expect("a weight");
        there.take(buffers);
    }
    model.build(64).expect("a model");
    let tokenizer = match path.is_dir() {
        true => Tokenizer::from_json(&read("tokenizer.json"), text::UNICODE),
        false => Tokenizer::from_gguf(model.index(), text::UNICODE),
    };
    (model, tokenizer.expect("a tokenizer"))
}

#[test]
fn an_encoder_without_a_device_gives_what_transformers_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/embedders");
    for (name, file) in [
        ("bert", "bert.gguf"),
        ("nomic", "nomic.gguf"),
        ("roberta", "roberta"),
        ("mpnet", "mpnet"),
        ("bertrank", "bertrank.gguf"),
        ("robertarank", "robertarank"),
    ] {
        let mut there: Elsewhere<PackGraph> = Elsewhere::new();
        let (mut model, t) = encoder(&mut there, &folder.join(file));
        let expected = std::fs::read(folder.join(name).join("expected.json")).expect("a file");
        let expected = Json::parse(&expected).expect("JSON");
        let list = |key: &str| expected.get(key).and_then(Json::as_array).expect("a list").to_vec();
        let of = |v: &Json, key: &str| v.get(key).and_then(Json::as_str).expect("a text").to_owned();
        let number = |v: &Json| v.as_f64().expect("a number");
        let numbers = |v: &Json| v.as_array().map_or_else(|| vec![number(v)], |l| l.iter().map(number).collect());
        let mut texts: Vec<(Encoding, Vec<f64>)> = Vec::new();
        for v in list("texts") {
            let e = t.encode_with(&of(&v, "text"), None, true).expect("tokens");
            texts.push((e, numbers(v.get("vector").expect("a vector"))));
        }
        for v in list("pairs") {
            let e = t.encode_pair_within(&of(&v, "query"), &of(&v, "document"), 64).expect("tokens");
            texts.push((e, numbers(v.get("score").expect("a score"))));
        }
        let check = |there: &mut Elsewhere<PackGraph>, model: &mut RemoteEncoder| {
            let lengths: Vec<usize> = texts.iter().map(|t| t.0.ids.len()).collect();
            let (mut rest, width) = (&texts[..], model.encoder().expect("built").outputs());
            for (n, count) in packs(&lengths) {
                let (now, later) = rest.split_at(count);
                let values = there.values(model, n, &now.iter().map(|t| &t.0).collect::<Vec<_>>());
                for ((_, want), got) in now.iter().zip(values.chunks_exact(width)) {
                    let most = want.iter().fold(0.0f64, |m, w| m.max(w.abs()));
                    let near = |(g, w): (&f32, &f64)| (f64::from(*g) - w).abs() <= 1e-4 * most;
                    assert!(got.len() == want.len() && got.iter().zip(want).all(near), "{file}: {got:?}, not {want:?}");
                }
                rest = later;
            }
        };
        check(&mut there, &mut model);
        let before = there.rt.counters().programs;
        check(&mut there, &mut model);
        assert_eq!(there.rt.counters().programs, before, "{file}: kernels were compiled for the same texts");
    }
    let file = std::fs::read(folder.join("../llm/llama.gguf")).expect("a file");
    let e = RemoteEncoder::new(&file, file.len() as u64).err().expect("a decoder is refused");
    assert!(e.code() == "E_UNSUPPORTED" && e.to_string().contains("`llama`"), "{e}");
}

/// The headers of files tell it.
#[test]
fn weights_that_no_decoder_reads_are_refused_before_they_are_fetched() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/llm");
    let (shape, zeros) = ([4usize], [0u8; 16]);
    let config = std::fs::read(folder.join("llama/config.json")).expect("a file");
    let part = |name: &str| {
        let file = safetensors::write(&[(name, DType::F32, &shape[..], &zeros[..])], &[]).expect("a file");
        let mut model = Remote::from_config(&config, None).expect("a configuration");
        model.part(&file, file.len() as u64, "model.safetensors").map(|()| model.places().len())
    };
    assert_eq!(part("model.norm.weight").expect("a weight"), 1);
    assert_eq!(part("model.layers.0.self_attn.rotary_emb.inv_freq").expect("nothing that matters"), 0);
    let e = part("model.layers.0.self_attn.q_layernorm.weight").unwrap_err();
    assert!(e.code() == "E_UNSUPPORTED" && e.to_string().contains("q_layernorm"), "{e}");
    let file = std::fs::read(folder.join("llama.gguf")).expect("a file");
    let index = Gguf::parse(&file).expect("a GGUF file");
    let metadata: Vec<_> = index.metadata.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
    let name = "blk.1.attn_k_norm.weight";
    let file = gguf::write(&metadata, &[Data { name, kind: Kind::F32, shape: &shape, bytes: &zeros }]).expect("a file");
    let e = Remote::new(&file, file.len() as u64).err().expect("it is not refused");
    assert!(e.code() == "E_UNSUPPORTED" && e.to_string().contains(name), "{e}");
}
