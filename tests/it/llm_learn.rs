//! Adapters that learn beside a language model: losses, factors and texts are those of PEFT and torch (tests/fixtures/llm/finetune.py), from safetensors
//! and from GGUF, and what is written loads again.

use gradloom::io::json::Json;
use gradloom::io::safetensors::SafeTensors;
use gradloom::llm::{
    AdapterFile, Finetune, LanguageModel, Learned, LoadOptions, Lora, RateSchedule, Sampler, SamplingOptions,
};
use gradloom::{Error, NativeHost};
use gradloom_tests::here;
use std::path::{Path, PathBuf};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/llm")
}

fn load(path: &Path, device: &str, adapters: Vec<AdapterFile>) -> Option<LanguageModel> {
    let device = here::device(device, gradloom::open(device, 2))?;
    let options = LoadOptions { capacity: 64, adapters, ..LoadOptions::default() };
    Some(LanguageModel::load_with(path, device, NativeHost::without_cache(), &options).expect("a model"))
}

fn read(name: &str) -> Json {
    Json::parse(&std::fs::read(fixtures().join(name)).expect("a file")).expect("JSON")
}

fn number(of: &Json, key: &str) -> f64 {
    of.get(key).and_then(Json::as_f64).expect(key)
}

fn list<'a>(of: &'a Json, key: &str) -> &'a [Json] {
    of.get(key).and_then(Json::as_array).expect(key)
}

fn numbers(of: &Json, key: &str) -> Vec<f64> {
    list(of, key).iter().map(|n| n.as_f64().expect("a number")).collect()
}

/// What all cases read, and how one of them learns.
fn task(known: &Json, case: &Json) -> (Vec<Vec<u32>>, Finetune) {
    let texts: Vec<Vec<u32>> = list(known, "texts").iter().map(ids).collect();
    let time = number(known, "time") as usize;
    let lora = Lora {
        rank: number(case, "rank") as usize,
        alpha: number(case, "alpha"),
        targets: list(case, "targets").iter().map(|t| t.as_str().expect("a name").to_owned()).collect(),
        seed: number(known, "seed") as u64,
    };
    let how = Finetune {
        lora,
        // all of them, so that their order does not matter
        batch: texts.iter().map(|t| (t.len() - 1).div_ceil(time)).sum(),
        time,
        rate: number(known, "rate"),
        weight_decay: number(known, "decay"),
        most_norm: number(known, "norm"),
        ..Finetune::default()
    };
    (texts, how)
}

/// An adapter as PEFT writes it.
fn write(learned: &Learned, folder: &Path) {
    std::fs::create_dir_all(folder).expect("a folder");
    std::fs::write(folder.join("adapter_config.json"), &learned.config).expect("written");
    std::fs::write(folder.join("adapter_model.safetensors"), &learned.file).expect("written");
}

fn ids(of: &Json) -> Vec<u32> {
    of.as_array().expect("tokens").iter().map(|i| i.as_u64().expect("a token") as u32).collect()
}

fn text(m: &mut LanguageModel, prompt: &[u32], n: usize) -> Vec<u32> {
    let mut out = Vec::new();
    m.begin(prompt).expect("reads");
    let mut sampler = Sampler::new(&SamplingOptions::default()).expect("options");
    let taken = m.generate(n, &mut sampler, false, |_, t| {
        out.push(t);
        Ok(true)
    });
    taken.expect("generates");
    out
}

#[test]
fn adapters_learn_as_those_of_peft() {
    let known = read("finetune.json");
    let prompt = ids(known.get("prompt").expect("a prompt"));
    for (at, case) in list(&known, "cases").iter().enumerate() {
        let name = case.get("model").and_then(Json::as_str).expect("a name");
        let want = numbers(case, "losses");
        let (texts, how) = task(&known, case);
        let how = Finetune { steps: want.len(), ..how };
        // rows of queries and keys in another order, and another device, for some
        let gguf = fixtures().join(format!("{name}.gguf"));
        let folder = fixtures().join(name);
        for (path, device) in [(&folder, "cpu"), (&gguf, "cpu"), (&folder, "wgpu")] {
            if device == "wgpu" && at % 4 != 0 {
                continue;
            }
            let what = format!("{} on {device}", path.display());
            let Some(mut m) = load(path, device, vec![]) else { continue };
            let plain = text(&mut m, &prompt, 24);
            let mut losses = Vec::new();
            let learned = m.finetune(&texts, &how, |_, loss| {
                losses.push(loss);
                true
            });
            let learned = learned.unwrap_or_else(|e| panic!("{what}: {e}"));
            for (got, want) in losses.iter().zip(&want) {
                assert!((got - want).abs() <= 2e-4 * want, "{what}: losses {losses:?}, not {want:?}");
            }
            assert_eq!(losses.len(), want.len(), "{what}");
            let index = SafeTensors::parse(&learned.file).expect("safetensors");
            assert_eq!(index.entries.len(), 2 * number(case, "modules") as usize, "{what}");
            let module = case.get("module").and_then(Json::as_str).expect("a name");
            for (half, want) in ["lora_A", "lora_B"].into_iter().zip(numbers(case, "sums")) {
                let entry = index.get(&format!("base_model.model.{module}.{half}.weight")).expect(module);
                let sum: f64 = entry.to_host(&learned.file).expect("a tensor").to_f64().iter().map(|x| x.abs()).sum();
                assert!((sum - want).abs() <= 1e-3 * want, "{what}: {module}.{half} {sum}, not {want}");
            }
            // what was in use goes on as before
            assert_eq!(text(&mut m, &prompt, 24), plain, "{what}");
            m.add_adapter("learned", learned.adapter.clone()).expect("an adapter");
            m.use_adapter(Some("learned")).expect("an adapter");
            let want = ids(case.get("tokens").expect("tokens"));
            assert_eq!(text(&mut m, &prompt, 24), want, "{what}: the adapter in use");
            m.use_adapter(None).expect("none");
            assert_eq!(text(&mut m, &prompt, 24), plain, "{what}: without it");
            // as files, beside the other file of the model too
            let temp = std::env::temp_dir().join(format!("gradloom-learn-{}-{at}", std::process::id()));
            write(&learned, &temp);
            for other in [&folder, &gguf] {
                let Some(mut m) = load(other, device, vec![AdapterFile::new(&temp)]) else { continue };
                let name = m.adapters()[0].to_owned();
                m.use_adapter(Some(&name)).expect("an adapter");
                assert_eq!(text(&mut m, &prompt, 24), want, "{what}: read again beside {}", other.display());
            }
            std::fs::remove_dir_all(&temp).expect("removed");
        }
    }
}

#[test]
fn rates_change_and_adapters_go_on_as_with_torch() {
    let (known, rates) = (read("finetune.json"), read("rates.json"));
    for (at, case) in list(&rates, "cases").iter().enumerate() {
        let name = case.get("model").and_then(Json::as_str).expect("a name");
        let (gguf, folder) = (fixtures().join(format!("{name}.gguf")), fixtures().join(name));
        let want = numbers(case, "losses");
        let temp = std::env::temp_dir().join(format!("gradloom-rates-{}-{at}", std::process::id()));
        let mut losses = Vec::new();
        let (texts, mut how) = task(&known, case);
        // what the file of the one model has learned goes on beside the other
        for (part, path) in list(case, "parts").iter().zip([&folder, &gguf]) {
            let [steps, schedule, warmup] = part.as_array().expect("three") else { panic!("a part of {part:?}") };
            how.steps = steps.as_u64().expect("steps") as usize;
            how.warmup = warmup.as_u64().expect("steps") as usize;
            how.schedule = match schedule.as_str() {
                Some("linear") => RateSchedule::Linear,
                Some("cosine") => RateSchedule::Cosine,
                _ => RateSchedule::Constant,
            };
            let adapters = how.from.iter().map(|_| AdapterFile::new(&temp)).collect();
            let Some(mut m) = load(path, "cpu", adapters) else { return };
            how.from = m.adapters().first().map(|n| (*n).to_owned());
            let learned = m.finetune(&texts, &how, |_, loss| {
                losses.push(loss);
                true
            });
            let learned = learned.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            write(&learned, &temp);
            let config = Json::parse(learned.config.as_bytes()).expect("JSON");
            assert_eq!(number(&config, "lora_alpha"), number(case, "alpha"), "{name}");
            assert_eq!(number(&config, "r"), number(case, "rank"), "{name}");
            how.from = Some(String::new());
            // of the second part nothing but the seed counts
            how.lora = Lora { seed: how.lora.seed, ..Lora::default() };
        }
        assert_eq!(losses.len(), want.len(), "{name}");
        for (got, want) in losses.iter().zip(&want) {
            assert!((got - want).abs() <= 2e-4 * want, "{name}: losses {losses:?}, not {want}");
        }
        let Some(mut m) = load(&folder, "cpu", vec![AdapterFile::new(&temp)]) else { return };
        let own = m.adapters()[0].to_owned();
        m.use_adapter(Some(&own)).expect("an adapter");
        let prompt = ids(known.get("prompt").expect("a prompt"));
        assert_eq!(text(&mut m, &prompt, 24), ids(case.get("tokens").expect("tokens")), "{name}");
        std::fs::remove_dir_all(&temp).expect("removed");
    }
}

#[test]
fn a_run_that_goes_on_is_the_one_that_never_ended() {
    let file = fixtures().join("llama.gguf");
    let texts: Vec<Vec<u32>> = (0..6u32).map(|i| (0..24).map(|t| 2 + (t * (i + 3) + i) % 40).collect()).collect();
    // a scale whose inverse is not exact
    let lora = Lora { rank: 3, alpha: 5.0, seed: 7, ..Lora::default() };
    let (schedule, warmup) = (RateSchedule::Cosine, 2);
    let how = Finetune {
        lora,
        steps: 9,
        batch: 2,
        time: 16,
        rate: 1e-2,
        schedule,
        warmup,
        weight_decay: 0.1,
        ..Finetune::default()
    };
    let run = |how: &Finetune, adapters: Vec<AdapterFile>, most: usize| {
        let mut m = load(&file, "cpu", adapters)?;
        let from = m.adapters().first().map(|n| (*n).to_owned());
        let mut losses = Vec::new();
        let learned = m.finetune(&texts, &Finetune { from, ..how.clone() }, |step, loss| {
            losses.push((step, loss));
            losses.len() < most
        });
        Some((learned.expect("learns"), losses))
    };
    let Some((whole, want)) = run(&how, vec![], 9) else { return };
    let (part, mut losses) = run(&how, vec![], 4).expect("as before");
    let temp = std::env::temp_dir().join(format!("gradloom-resume-{}", std::process::id()));
    write(&part, &temp);
    let adapters = || vec![AdapterFile::new(&temp)];
    let more = Finetune { state: Some(part.state.clone()), ..how.clone() };
    let (rest, later) = run(&more, adapters(), 9).expect("as before");
    losses.extend(later);
    assert_eq!(losses, want, "bit by bit");
    assert_eq!((&rest.file, &rest.state, &rest.config), (&whole.file, &whole.state, &whole.config));
    // moments that begin anew give others
    let (_, anew) = run(&how, adapters(), 9).expect("as before");
    assert_eq!(anew.len(), 9);
    assert_ne!(anew[5].1, want[5].1);

    let mut m = load(&file, "cpu", adapters()).expect("as before");
    let from = m.adapters().first().map(|n| (*n).to_owned());
    let mut refused = |how: Finetune, what: &str| {
        let e = m.finetune(&texts, &how, |_, _| true).err().unwrap_or_else(|| panic!("{what}: it is not refused"));
        assert!(e.to_string().contains(what), "{e}");
    };
    refused(more.clone(), "goes on");
    refused(Finetune { from: from.clone(), steps: 4, ..more.clone() }, "4 steps are done");
    refused(Finetune { from: from.clone(), state: Some(part.file.clone()), ..more.clone() }, "another adapter");
    refused(Finetune { from, state: Some(vec![1; 9]), ..more }, "safetensors");
    std::fs::remove_dir_all(&temp).expect("removed");
}

#[test]
fn a_quantised_model_learns_a_text() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/verses/verses-q8_0.gguf");
    let Some(mut m) = load(&file, "cpu", vec![]) else { return };
    let tokenizer = m.tokenizer().expect("a tokenizer").clone();
    let line = "The shepherd sold seven green lamps to the merchant of the northern sea.";
    let words = tokenizer.encode(line).expect("tokens");
    let before = m.perplexity_of(&words).expect("a loss").perplexity();
    let how = Finetune { steps: 30, batch: 1, time: 64, rate: 1e-2, ..Finetune::default() };
    let mut losses = Vec::new();
    let learned = m.finetune(std::slice::from_ref(&words), &how, |_, loss| {
        losses.push(loss);
        true
    });
    let (first, last) = (losses[0], losses[losses.len() - 1]);
    // both are the mean over the same tokens, the one with rounded activations
    assert!((first - before.ln()).abs() < 1e-2, "{first}, not {}", before.ln());
    assert!(last < 0.1 * first, "{losses:?}");
    m.add_adapter("line", learned.expect("learns").adapter).expect("an adapter");
    m.use_adapter(Some("line")).expect("an adapter");
    let prompt = tokenizer.encode("The shepherd sold").expect("tokens");
    let got = text(&mut m, &prompt, words.len() - prompt.len());
    assert_eq!(tokenizer.decode(&got).expect("text"), line["The shepherd sold".len()..]);
    // an adapter that there is room for changes no plan
    let programs = m.counters().programs;
    let again = m.finetune(&[words], &Finetune { steps: 2, ..how }, |_, _| true).expect("learns");
    assert_eq!(m.counters().programs, programs, "kernels were compiled for the same training");
    m.add_adapter("again", again.adapter).expect("an adapter");
    m.use_adapter(Some("again")).expect("an adapter");
    m.begin(&prompt).expect("reads");
    assert_eq!(m.counters().programs, programs);
}

#[test]
fn what_cannot_be_learned_is_refused() {
    let Some(mut m) = load(&fixtures().join("llama.gguf"), "cpu", vec![]) else { return };
    let text = vec![2, 3, 4, 5, 6];
    let mut refused = |texts: &[Vec<u32>], how: &Finetune, what: &str| {
        let e = m.finetune(texts, how, |_, _| true).err().unwrap_or_else(|| panic!("{what}: it is not refused"));
        assert!(matches!(e, Error::Value { .. }) && e.to_string().contains(what), "{e}");
    };
    let plain = Finetune::default();
    refused(&[], &plain, "no text");
    refused(&[vec![3]], &plain, "no text");
    refused(&[vec![3, 48]], &plain, "token 48");
    let lora = |lora: Lora| Finetune { lora, ..Finetune::default() };
    refused(&[text.clone()], &lora(Lora { rank: 0, ..Lora::default() }), "rank of 0");
    refused(&[text.clone()], &lora(Lora { targets: vec!["x_proj".into()], ..Lora::default() }), "x_proj");
    refused(&[text.clone()], &Finetune { batch: 0, ..plain.clone() }, "0 texts");
    refused(&[text.clone()], &Finetune { from: Some("none".into()), ..plain.clone() }, "no adapter is called");
    refused(&[text.clone()], &Finetune { rate: f64::NAN, ..plain.clone() }, "rate of NaN");
    refused(&[text], &Finetune { rate: 1e30, steps: 20, ..plain }, "loss is");
}
