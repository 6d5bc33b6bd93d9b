// Filter banks as Kaldi computes them (src/feat/feature-fbank.cc), with which many models of speech were trained. Everything
// up to the spectrum is linear (the mean of a window, the difference of neighbours, the window itself, the transform), so
// it is one convolution with a basis that is computed here once.
import type { Device } from "../device.js";
import { ValueError } from "../errors.js";
import { Tensor, tidy } from "../tensor.js";

/** Options of `fbank`; the defaults are Kaldi's, except for the number of bands. */
export interface FbankOptions {
  sampleRate?: number;
  /** Samples per window, and between consecutive windows. Defaults: 400 and 160, 25 and 10 ms at 16 kHz. */
  window?: number;
  hop?: number;
  /** Number of mel bands. Default: 80. */
  mels?: number;
  /** The lowest and the highest frequency in Hz. Defaults: 20 and half the sample rate. */
  low?: number;
  high?: number;
  /** How much of the sample before is subtracted from each sample of a window. Default: 0.97. */
  preemphasis?: number;
  device?: Device;
}

/** Kaldi's samples are 16-bit integers. */
const SAMPLE_SCALE = 32_768;
/** The least power of a band, so that its logarithm is finite. */
const LEAST_POWER = 1.1920929e-7;

/**
 * The logarithms of the power in mel bands, f32 `[frames, bands]`, of samples from -1 to 1: Kaldi's filter banks with the
 * Povey window and without dither. Windows lie entirely in the sound, so there are `1 + (n - window) / hop` frames.
 */
export function fbank(samples: Float32Array | Tensor, options: FbankOptions = {}): Tensor {
  const { sampleRate = 16_000, window = 400, hop = 160, mels = 80, device } = options;
  if (![window, hop, mels].every((each) => Number.isInteger(each) && each > 0)) {
    throw new ValueError("E_VALUE", `fbank: ${mels} bands of windows of ${window} samples every ${hop}`);
  }
  const [rank, n] = samples instanceof Tensor ? [samples.rank, samples.size] : [1, samples.length];
  if (rank !== 1 || n < window) throw new ValueError("E_VALUE", `fbank: windows of ${window} samples of a sound of ${n}, of rank ${rank}`);
  const fft = 2 ** Math.ceil(Math.log2(window));
  const bins = fft / 2;
  return tidy(() => {
    const sound = samples instanceof Tensor ? samples : new Tensor(samples, [n], device ? { device } : {});
    const tensorOptions = sound.device ? { device: sound.device } : {};
    const basis = new Tensor(kaldiBasis(window, fft, options.preemphasis ?? 0.97), [2 * bins, 1, window], tensorOptions);
    const spectrum = sound.mul(SAMPLE_SCALE).reshape([1, 1, n]).conv(basis, null, { stride: hop });
    const frames = spectrum.shape[2] as number;
    const power = spectrum.square().reshape([2, bins, frames]).sum(0);
    const bands = new Tensor(kaldiFilters(sampleRate, fft, mels, options.low ?? 20, options.high ?? sampleRate / 2), [mels, bins], tensorOptions);
    return bands.matmul(power).maximum(LEAST_POWER).log().transpose(0, 1);
  });
}

/** The basis `[2 * fft / 2, window]`: cosines, then sines, of the frequencies below half the sample rate, of a prepared window. */
function kaldiBasis(window: number, fft: number, preemphasis: number): Float32Array {
  const bins = fft / 2;
  const povey = Float64Array.from({ length: window }, (_, i) => (0.5 - 0.5 * Math.cos((2 * Math.PI * i) / (window - 1))) ** 0.85);
  const out = new Float32Array(2 * bins * window);
  const row = new Float64Array(window);
  [Math.cos, Math.sin].forEach((wave, part) => {
    for (let bin = 0; bin < bins; bin += 1) {
      for (let i = 0; i < window; i += 1) row[i] = (povey[i] as number) * wave((2 * Math.PI * ((bin * i) % fft)) / fft);
      // what each sample adds, itself and by being subtracted from the next; the first has itself before it
      let sum = 0;
      for (let i = 0; i < window; i += 1) {
        const own = row[i] as number;
        row[i] = own - preemphasis * ((row[i + 1] ?? 0) + (i === 0 ? own : 0));
        sum += row[i] as number;
      }
      // the mean of the window is subtracted before all that
      for (let i = 0; i < window; i += 1) out[(part * bins + bin) * window + i] = (row[i] as number) - sum / window;
    }
  });
  return out;
}

/** The mel filters `[mels, fft / 2]`: triangles of equal width and height on the mel scale. */
function kaldiFilters(sampleRate: number, fft: number, mels: number, low: number, high: number): Float32Array {
  if (!(low >= 0 && high > low && high <= sampleRate / 2)) {
    throw new ValueError("E_VALUE", `fbank: bands from ${low} to ${high} Hz at ${sampleRate} samples a second`);
  }
  const toMel = (hz: number): number => 1127 * Math.log(1 + hz / 700);
  const bins = fft / 2;
  const [from, to] = [toMel(low), toMel(high)];
  const step = (to - from) / (mels + 1);
  const out = new Float32Array(mels * bins);
  for (let m = 0; m < mels; m += 1) {
    const centre = from + (m + 1) * step;
    for (let bin = 0; bin < bins; bin += 1) out[m * bins + bin] = Math.max(0, 1 - Math.abs(toMel((bin * sampleRate) / fft) - centre) / step);
  }
  return out;
}
