//! Language models whose graphs are made in a session without a device, as the wasm module of pages makes them.

use gradloom::dtype::Scalar;
use gradloom::engine::{Bytes, Replay};
use gradloom::io::gguf::{self, Data, Gguf, Kind};
use gradloom::io::json::Json;
use gradloom::io::safetensors;
use gradloom::llm::{Buffer, Graph, Input, LAST, POSITION, Remote, Wanted, chunks};
use gradloom::tensor::wire;
use gradloom::{DType, Error, Runtime, Tensor};
use std::collections::BTreeMap;
use std::path::Path;

struct Elsewhere {
    rt: Runtime,
    buffers: BTreeMap<u32, Tensor>,
    plans: BTreeMap<usize, (Graph, Replay)>,
}

impl Elsewhere {
    fn take(&mut self, list: Vec<Buffer>) {
        for b in list {
            let bytes = if b.bytes.is_empty() { vec![0; b.len * b.dtype.size()] } else { b.bytes };
            let t = Tensor::from_bytes(self.rt.session(), b.dtype, &[b.len], Bytes::new(bytes)).expect("a buffer");
            assert!(self.buffers.insert(b.number, t).is_none(), "a buffer came twice");
        }
    }

    fn plan(&mut self, model: &mut Remote, n: usize) {
        let mut g = model.graph(n, Wanted::Next).expect("a graph");
        self.take(std::mem::take(&mut g.buffers));
        let s = self.rt.session().clone();
        let input = |i: &Input| match i {
            Input::Buffer(b) => self.buffers[b].clone(),
            Input::Variable(name, min, max) => {
                Tensor::variable(&s, name, *min as i32, *max as i32).expect("a variable")
            }
        };
        let inputs: Vec<Tensor> = g.inputs.iter().map(input).collect();
        let outs = wire::read(&s, &g.bytes, &inputs).expect("a graph that was written");
        let replay = self.rt.realize(&outs.iter().collect::<Vec<_>>()).expect("a plan");
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
        let mut there = Elsewhere {
            rt: Runtime::open("cpu", 1).expect("a device"),
            buffers: BTreeMap::new(),
            plans: BTreeMap::new(),
        };
        let ranges: Vec<_> = model.index().entries.iter().map(|e| e.range.clone()).collect();
        assert!(model.weight(0, &[0; 3]).is_err());
        for (i, r) in ranges.iter().enumerate() {
            let buffers = model.weight(i, &file[r.start as usize..r.end as usize]).expect("a weight");
            assert!(buffers.iter().all(|b| b.len * b.dtype.size() == b.bytes.len() && b.dtype != DType::Void));
            there.take(buffers);
        }
        model.build(128).expect("a model");
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
