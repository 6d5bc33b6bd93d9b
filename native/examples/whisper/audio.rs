//! Sound to the log-mel spectrogram that Whisper hears (Radford et al. 2022, section 2.1): 16 kHz, windows of 25 ms every
//! 10 ms, 80 mel bands.

use gradloom::tensor::{ConvOpts, PadMode, Session};
use gradloom::{Error, Result, Tensor};
use std::f64::consts::PI;

/// Samples per second.
pub(crate) const RATE: usize = 16_000;
/// Samples that the model hears at once: 30 seconds.
pub(crate) const WINDOW: usize = 30 * RATE;
const FFT: usize = 400;
const HOP: usize = 160;
const BINS: usize = FFT / 2 + 1;
const MELS: usize = 80;

/// The samples of a WAV file: 16-bit PCM, one channel, 16 kHz.
pub(crate) fn read_wav(bytes: &[u8]) -> Result<Vec<f32>> {
    let bad = |what: &str| Error::value("wav", what.to_string());
    if bytes.get(..4) != Some(b"RIFF") || bytes.get(8..12) != Some(b"WAVE") {
        return Err(bad("not a RIFF/WAVE file"));
    }
    let (mut at, mut known) = (12usize, false);
    while let Some(head) = bytes.get(at..at + 8) {
        let len = u32::from_le_bytes(head[4..8].try_into().expect("4 bytes")) as usize;
        let end = (at + 8).saturating_add(len).min(bytes.len());
        let body = &bytes[at + 8..end];
        match &head[..4] {
            b"fmt " => {
                let word = |i: usize| body.get(i..i + 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
                let rate = word(4).unwrap_or(0) as usize + ((word(6).unwrap_or(0) as usize) << 16);
                known = word(0) == Some(1) && word(2) == Some(1) && word(14) == Some(16) && rate == RATE;
            }
            b"data" if known => {
                return Ok(body.chunks_exact(2).map(|b| i16::from_le_bytes([b[0], b[1]]) as f32 / 32768.0).collect());
            }
            _ => {}
        }
        at = end + (len & 1);
    }
    Err(bad("16-bit PCM with one channel at 16 kHz is needed"))
}

/// Samples at 16 kHz, cut or filled with silence to 30 seconds, as `[1, 80, 3000]`.
pub(crate) fn log_mel(session: &Session, samples: &[f32]) -> Result<Tensor> {
    let mut sound = samples[..samples.len().min(WINDOW)].to_vec();
    sound.resize(WINDOW, 0.0);
    let half = FFT as i64 / 2;
    let sound = Tensor::new(session, &sound, &[1, 1, WINDOW])?.pad_last(&[half, half], PadMode::Reflect, 0.0)?;
    // the short-time Fourier transform is a convolution with windowed cosines and sines
    let waves = Tensor::new(session, &fourier(), &[2 * BINS, 1, FFT])?;
    let spectrum = sound.conv(&waves, None, &ConvOpts::new().stride(&[HOP]))?.narrow(2, 0, WINDOW / HOP)?;
    let power = spectrum.square()?.reshape(&[1, 2, BINS, WINDOW / HOP])?.sum(&[1], false)?;
    let mel = Tensor::new(session, &mel_filters(), &[MELS, BINS])?.matmul(&power)?;
    let log = mel.maximum(1e-10)?.log10()?;
    let floor = log.max(&[], true)?.sub(8.0)?;
    log.maximum(&floor)?.add(4.0)?.div(4.0)
}

/// `[2 * BINS, FFT]`: cosines, then sines, under a periodic Hann window.
fn fourier() -> Vec<f32> {
    let wave = |turn: fn(f64) -> f64, bin: usize, n: usize| {
        let window = 0.5 - 0.5 * (2.0 * PI * n as f64 / FFT as f64).cos();
        // the phase modulo one turn keeps the argument small
        (window * turn(2.0 * PI * ((bin * n) % FFT) as f64 / FFT as f64)) as f32
    };
    let rows = |turn: fn(f64) -> f64| (0..BINS).flat_map(move |bin| (0..FFT).map(move |n| wave(turn, bin, n)));
    rows(f64::cos).chain(rows(f64::sin)).collect()
}

/// `[MELS, BINS]`: triangles on Slaney's mel scale (linear below 1 kHz, logarithmic above), each of area one.
fn mel_filters() -> Vec<f32> {
    let (step, knee) = (200.0 / 3.0, 1000.0);
    let slope = 6.4f64.ln() / 27.0;
    let to_mel = |hz: f64| if hz < knee { hz / step } else { knee / step + (hz / knee).ln() / slope };
    let to_hz = |mel: f64| if mel < knee / step { mel * step } else { knee * (slope * (mel - knee / step)).exp() };
    let top = to_mel(RATE as f64 / 2.0);
    let edge: Vec<f64> = (0..MELS + 2).map(|i| to_hz(top * i as f64 / (MELS + 1) as f64)).collect();
    let weight = |m: usize, bin: usize| {
        let hz = (bin * RATE) as f64 / FFT as f64;
        let up = (hz - edge[m]) / (edge[m + 1] - edge[m]);
        let down = (edge[m + 2] - hz) / (edge[m + 2] - edge[m + 1]);
        (up.min(down).max(0.0) * 2.0 / (edge[m + 2] - edge[m])) as f32
    };
    (0..MELS).flat_map(|m| (0..BINS).map(move |bin| weight(m, bin))).collect()
}
