//! Speech recognition (Whisper tiny.en): the example of the `gradloom` crate, sound to text, against onnxruntime's numbers.

use crate::models::{arrays, error, folder};
use gradloom::io::{HostTensor, safetensors};
use gradloom::nn::StateDict;
use gradloom::tensor::Slice;
use gradloom::{Runtime, Tensor};
use gradloom_tests::here;
use std::path::Path;
use std::sync::Arc;

#[path = "../../native/examples/whisper/audio.rs"]
mod audio;
#[path = "../../native/examples/whisper/model.rs"]
mod model;
#[path = "../../native/examples/whisper/score.rs"]
mod score;

/// `expected.npz` has the first 3.2 seconds of the spectrogram, every 25th moment and 4th channel of the features, and every
/// 101st logit of the tokens that it names.
fn check(device: &str) {
    let weights = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/models/whisper_tiny_en");
    let Ok(bytes) = std::fs::read(weights.join("model.safetensors")) else {
        // `npm test` fetches it and sets this
        assert!(std::env::var_os("GRADLOOM_MODELS").is_none(), "{} has no weights", weights.display());
        return here::left_out("whisper", "run `node scripts/fetch-models.mjs whisper` first");
    };
    let Some(mut rt) = here::device(device, Runtime::open(device, 2)) else { return };
    let session = rt.session().clone();
    let dict: StateDict = safetensors::tensors(&session, Arc::new(bytes)).unwrap().into_iter().collect();
    let whisper = model::Whisper::new(&session, &dict).unwrap();
    let dir = folder("whisper_tiny_en");
    let expected = arrays(&dir.join("expected.npz"));
    let want = |name: &str| -> &HostTensor { &expected.iter().find(|a| a.0 == name).unwrap().1 };

    let samples = audio::read_wav(&std::fs::read(dir.join("speech.wav")).unwrap()).unwrap();
    let mel = audio::log_mel(&session, &samples).unwrap();
    let sound = whisper.encode(&mel).unwrap();
    let ids = want("tokens");
    let bytes = gradloom::engine::Bytes::new(ids.data.clone());
    let tokens = Tensor::from_bytes(&session, ids.dtype, &ids.shape, bytes).unwrap();
    let logits = whisper.logits(&tokens, &sound).unwrap();
    rt.realize(&[&mel, &sound, &logits]).unwrap();
    let every = |t: &Tensor, steps: &[i64]| {
        let slices: Vec<Slice> = steps.iter().map(|&s| Slice::step(None, None, s)).collect();
        t.slice(&slices).unwrap()
    };
    let cases = [
        ("mel", mel.narrow(2, 0, 320).unwrap()),
        ("features", every(&sound, &[1, 25, 4])),
        ("logits", every(&logits, &[1, 1, 101])),
    ];
    for (name, t) in cases {
        let e = error(&rt.read(&t).unwrap(), want(name));
        assert!(e <= 1e-3, "whisper on {device}, `{name}`: off by {e:.1e}");
    }

    let said = whisper.transcribe(&mut rt, &sound).unwrap();
    let words = model::Words::read(&std::fs::read(weights.join("vocabulary.txt")).unwrap());
    // what the reference implementation hears too
    assert_eq!(words.text(&said), " He was not an old-sposed young man.");
}

#[test]
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
fn whisper_transcribes_on_the_processor() {
    check("cpu");
}

#[test]
#[cfg(feature = "wgpu")]
fn whisper_transcribes_on_wgpu() {
    check("wgpu");
}

#[test]
fn word_errors_are_the_fewest_edits() {
    let file = "<s> ten of clubs  </s> (001)\nfour mister queens (002)\nno name\n";
    let truth = score::transcripts(file);
    assert_eq!(truth.iter().map(|t| t.0.as_str()).collect::<Vec<_>>(), ["001", "002"]);
    let count = |truth: &str, heard: &str| score::errors(&score::words(truth), &score::words(heard));
    assert_eq!(count(&truth[0].1, " 10 of clubs."), 0);
    assert_eq!(count(&truth[1].1, "Four Mr. queens!"), 0);
    // one changed, one left out, two added
    assert_eq!(count("a b c d", "a x d"), 2);
    assert_eq!(count("a b", "a q q b"), 2);
    assert_eq!((count("", "a b"), count("a b", "")), (2, 2));
}
