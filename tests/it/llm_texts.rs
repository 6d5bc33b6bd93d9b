//! Language models with several texts at once, with guesses, and for whole texts: each gives what one text at a time gives.

use gradloom::device::NullDevice;
use gradloom::dtype::Scalar;
use gradloom::engine::plan::Call;
use gradloom::llm::{LanguageModel, LoadOptions, POSITION, Sampler, SamplingOptions};
use gradloom::target::{Isa, Target};
use gradloom::{DType, NativeHost, Result, Runtime, Tensor};
use gradloom_tests::here;
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/llm").join(name)
}

fn load(name: &str, device: &str, capacity: usize, texts: usize) -> Option<LanguageModel> {
    let device = here::device(device, gradloom::open(device, 2))?;
    let made = LanguageModel::load_for(&fixture(name), device, NativeHost::without_cache(), capacity, texts);
    Some(made.unwrap_or_else(|e| panic!("{name}: {e}")))
}

fn greedy(m: &mut LanguageModel, prompt: &[u32], n: usize) -> Vec<u32> {
    let mut out = Vec::new();
    m.begin(prompt).expect("reads");
    m.generate(n, &mut Sampler::new(&SamplingOptions::default()).expect("options"), false, |_, t| {
        out.push(t);
        Ok(true)
    })
    .expect("generates");
    out
}

fn prompt(n: usize, seed: usize) -> Vec<u32> {
    (0..n).map(|i| ((7 * i * i + (3 + seed) * i + 2 * seed) % 46 + 2) as u32).collect()
}

/// Texts of different lengths, which begin and end at different steps.
fn together(name: &str, device: &str, capacity: usize) {
    let what = format!("{name} on {device}");
    let Some(mut one) = load(name, device, capacity, 1) else { return };
    let prompts: Vec<Vec<u32>> = [3, 37, 11].iter().enumerate().map(|(i, &n)| prompt(n, i)).collect();
    let steps = [30, 20, 9];
    let want: Vec<Vec<u32>> = prompts.iter().zip(steps).map(|(p, n)| greedy(&mut one, p, n)).collect();
    let Some(mut m) = load(name, device, capacity, 5) else { return };
    let mut got: Vec<Vec<u32>> = vec![Vec::new(); 3];
    // the last text comes later
    let begins = [0, 0, 6];
    let mut programs = Vec::new();
    for step in 0..36 {
        for i in 0..3 {
            if begins[i] == step {
                m.choose_text(i, 0).expect("there is room");
                m.read(&prompts[i]).expect("reads");
                got[i].push(m.best().expect("a token"));
            }
        }
        let running = |i: &usize| begins[*i] <= step && got[*i].len() < steps[*i];
        let list: Vec<(usize, u32)> = (0..3).filter(running).map(|i| (i, *got[i].last().expect("one"))).collect();
        if list.is_empty() {
            continue;
        }
        m.read_each(&list).expect("reads");
        let best = m.best_each().expect("tokens");
        list.iter().for_each(|(i, _)| got[*i].push(best[*i]));
        programs.push(m.counters().programs);
    }
    assert_eq!(got, want, "{what}");
    // plans for two, four and one of them
    programs.dedup();
    assert!(programs.len() <= 3, "{what}: kernels were compiled for later steps: {programs:?}");
}

#[test]
fn several_texts_give_what_each_gives_alone() {
    for name in ["llama.gguf", "mistral", "gemma2.gguf", "gpt2", "mamba.gguf"] {
        together(name, "cpu", 64);
    }
    for device in ["cpu:guarded", "wgpu", "c"] {
        together("llama.gguf", device, 64);
    }
    // Layers with a window
    for (name, device) in [("mistral", "cpu"), ("gemma2.gguf", "cpu:guarded"), ("mistral", "wgpu")] {
        together(name, device, 100);
    }
}

/// A model without caches goes on from a whole text, or begins anew.
#[test]
fn a_state_is_that_of_a_whole_text() {
    let Some(mut m) = load("mamba.gguf", "cpu", 128, 2) else { return };
    let (text, other) = (prompt(40, 1), prompt(30, 2));
    m.begin(&text).expect("reads");
    let want = m.logits().expect("logits");
    assert_eq!((m.shared(0, &text[..20]), m.shared(0, &[&text[..], &[5]].concat())), (0, 40));
    assert_eq!(m.choose_text(0, 20).expect_err("half a state").code(), "E_VALUE");
    // Another text meanwhile, a longer one, and the first one anew
    m.choose_text(1, 0).expect("a text");
    m.begin(&other).expect("reads");
    m.choose_text(0, 40).expect("the whole text");
    m.read(&[5, 6]).expect("reads");
    m.begin(&text).expect("reads");
    assert_eq!(m.logits().expect("logits"), want);
    // Guesses are not checked several at once
    let mut guessed = Vec::new();
    m.begin(&[5, 9, 14].repeat(6)).expect("reads");
    let (_, count) = m
        .generate_guessing(12, false, |_, t| {
            guessed.push(t);
            Ok(true)
        })
        .expect("generates");
    assert_eq!((count.guesses, guessed), (0, greedy(&mut m, &[5, 9, 14].repeat(6), 12)));
    let options = LoadOptions { cache: DType::F16, ..LoadOptions::default() };
    let device = gradloom::open("cpu", 1).expect("cpu");
    let made = LanguageModel::load_with(&fixture("mamba.gguf"), device, NativeHost::without_cache(), &options);
    assert_eq!(made.err().expect("it has no keys").code(), "E_UNSUPPORTED");
}

#[test]
fn texts_that_cannot_be_are_refused() {
    let Some(mut m) = load("llama.gguf", "cpu", 16, 2) else { return };
    let value = |r: gradloom::Result<()>| assert_eq!(r.unwrap_err().code(), "E_VALUE");
    value(m.choose_text(2, 0));
    value(m.read_each(&[]));
    value(m.read_each(&[(2, 3)]));
    value(m.read_each(&[(0, 48)]));
    value(m.read_each(&[(0, 3), (0, 4)]));
    for _ in 0..16 {
        m.read_each(&[(1, 3)]).expect("there is room");
    }
    value(m.read_each(&[(1, 3)]));
    m.read_each(&[(0, 3)]).expect("the other text has room");
    assert_eq!((m.text(0).len(), m.text(1).len(), m.shared(1, &[3, 3, 4])), (1, 16, 2));
}

#[test]
fn guesses_change_nothing() {
    for (name, n) in [("llama.gguf", 150), ("gpt2", 150), ("mistral.gguf", 100)] {
        let Some(mut m) = load(name, "cpu", 200, 1) else { return };
        // a text that goes in circles, so that there is something to guess
        let circles: Vec<u32> = [5, 9, 14, 3, 40].repeat(4);
        let want = greedy(&mut m, &circles, n);
        let mut got = Vec::new();
        m.begin(&circles).expect("reads");
        let add = |got: &mut Vec<u32>, t| {
            got.push(t);
            Ok(true)
        };
        let (_, count) = m.generate_guessing(n, false, |_, t| add(&mut got, t)).expect("generates");
        assert_eq!(got, want, "{name}");
        assert!(count.guesses > 0 && count.right <= count.guesses, "{count:?}");
        assert!(count.runs + count.right + 1 >= n && count.runs < n, "{name}: {count:?}");
        // to the end of the room
        let mut most = Vec::new();
        m.begin(&circles).expect("reads");
        m.generate_guessing(1000, false, |_, t| add(&mut most, t)).expect("generates");
        assert_eq!(most.len(), 200 - 20 + 1, "{name}");
        assert_eq!(most[..n], want, "{name}");
    }
}

/// Against the logits of each token alone.
#[test]
fn perplexity_is_that_of_each_token() {
    let text = prompt(45, 1);
    let Some(mut m) = load("llama.gguf", "cpu", 64, 1) else { return };
    let mut nats = 0.0;
    for (i, next) in text.iter().enumerate().skip(1) {
        m.begin(&text[..i]).expect("reads");
        let logits = m.logits().expect("logits");
        let all: f64 = logits.iter().map(|x| f64::from(*x).exp()).sum();
        nats += all.ln() - f64::from(logits[*next as usize]);
    }
    let got = m.perplexity_of(&text).expect("a number");
    assert_eq!(got.tokens, 44);
    assert!((got.nats - nats).abs() < 1e-3, "{got:?}, not {nats}");
    // in windows each token counts once
    let Some(mut m) = load("llama.gguf", "cpu", 16, 1) else { return };
    let windows = m.perplexity_of(&text).expect("a number");
    assert_eq!(windows.tokens, 44);
    assert!(windows.perplexity() > 1.0 && windows.perplexity().is_finite());
    assert!(m.perplexity_of(&[3]).is_err());
}

#[test]
fn embeddings_do_not_depend_on_chunks() {
    let Some(mut m) = load("llama.gguf", "cpu", 64, 3) else { return };
    let text = prompt(41, 2);
    let whole = m.embed(&text).expect("a vector");
    let length: f32 = whole.iter().map(|x| x * x).sum();
    assert!(whole.len() == 32 && (length - 1.0).abs() < 1e-5, "{length}");
    // one token at a time, of another text
    let mut sum = vec![0.0f32; 32];
    m.choose_text(2, 0).expect("there is room");
    let single = m.embed(&text[..1]).expect("a vector");
    let again = m.embed(&text).expect("a vector");
    for i in 0..32 {
        assert!((whole[i] - again[i]).abs() < 1e-5);
        sum[i] = single[i] - whole[i];
    }
    assert!(sum.iter().any(|d| d.abs() > 1e-2), "another text has another vector");
    assert!(m.embed(&[]).is_err());
}

/// Of a prompt only the last token's logits are wanted: the last layer goes on with one row.
#[test]
fn prompts_compute_what_is_asked_for() {
    for (name, texts) in [("llama.gguf", 1), ("gemma3.gguf", 1), ("phi3.gguf", 1), ("gpt2.gguf", 3)] {
        let Some(mut m) = load(name, "cpu", 64, texts) else { return };
        let text = prompt(40, 3);
        let logits = |m: &mut LanguageModel| m.logits().expect("logits");
        // token by token
        m.begin(&text[..1]).expect("reads");
        text[1..].iter().for_each(|t| m.read(&[*t]).expect("reads"));
        let want = logits(&mut m);
        m.choose_text(0, 0).expect("a text");
        m.begin(&text).expect("reads");
        let got = logits(&mut m);
        let most = want.iter().fold(0.0f32, |m, w| m.max(w.abs()));
        let off = got.iter().zip(&want).fold(0.0f32, |m, (g, w)| m.max((g - w).abs()));
        assert!(off <= 1e-4 * most, "{name}: {off} off of {most}");
        // a graph that gives all states computes more than the output of the other rows
        let all = m.decoder().states(32).expect("a graph");
        let roots: Vec<_> = all.roots().into_iter().cloned().collect();
        let every = m.runtime().realize(&roots.iter().collect::<Vec<_>>()).expect("runs").plan().clone();
        let next = m.replay(32).expect("a plan").plan().clone();
        let c = m.decoder().config();
        let output = 2 * c.width as u64 * m.decoder().vocabulary().expect("a vocabulary") as u64;
        let layers = c.layers as f64;
        let [every, next] = [every, next].map(|plan| {
            let program = |c: &Call| m.runtime().engine().program(c.program).map_or(0, |p| p.flops);
            plan.calls.iter().map(program).sum::<u64>()
        });
        let most = every as f64 * (1.0 - 0.5 / layers) + 2.0 * output as f64;
        assert!((next as f64) < most, "{name}: {next} operations, {every} for all tokens");
    }
}

/// Masks of places are computed in the kernels that read them, whose loops over keys end there: no target stores one for all layers.
#[test]
fn masks_are_no_buffers() {
    for t in [Target::wasm(true, 1), Target::wasm(false, 1), Target::x86(Isa::Avx2, 1), Target::x86(Isa::Avx512, 1)] {
        for tokens in [1, 32] {
            let mut rt = Runtime::on(Box::new(NullDevice::new(t.clone())));
            rt.engine().set_var(POSITION, Scalar::Int(3));
            let s = rt.session().clone();
            let layers = || -> Result<Vec<Tensor>> {
                let row = Tensor::arange(&s, 0.0, tokens as f64, 1.0, DType::I32)?.reshape(&[tokens, 1])?;
                let row = row.add(Tensor::variable(&s, POSITION, 0, 640 - tokens as i32)?)?;
                let col = Tensor::arange(&s, 0.0, 640.0, 1.0, DType::I32)?;
                let mask = col.le(&row)?.logical_and(col.add(512)?.gt(&row)?)?;
                let layer = |_| {
                    let scores = Tensor::empty(&s, DType::F32, &[12, tokens, 640])?;
                    let values = Tensor::empty(&s, DType::F32, &[12, 640, 64])?;
                    mask.select(scores, f64::NEG_INFINITY)?.softmax(-1)?.matmul(&values)
                };
                (0..12).map(layer).collect()
            };
            let layers = layers().expect("a graph");
            let plan = rt.realize(&layers.iter().collect::<Vec<_>>()).expect("a plan").plan().clone();
            for call in &plan.calls {
                let p = rt.engine().program(call.program).expect("it was compiled");
                let masks = p.source.params.iter().filter(|p| p.dtype == DType::Bool).count();
                assert_eq!(masks, 0, "{} and {tokens} tokens: {}", t.name, p.source.name);
            }
        }
    }
}
