// Mel spectrograms on the device: the short-time Fourier transform is a convolution with windowed cosines and sines.
import type { Device } from "../device.js";
import { ValueError } from "../errors.js";
import { Tensor, tidy } from "../tensor.js";

/** Options of spectrograms; the defaults are Whisper's. */
export interface MelOptions {
  sampleRate?: number;
  /** Samples per window, and between consecutive windows. Defaults: 400 and 160. */
  fft?: number;
  hop?: number;
  /** Number of mel bands. Default: 80. */
  mels?: number;
  /** The lowest and the highest frequency in Hz. Defaults: 0 and half the sample rate. */
  low?: number;
  high?: number;
  /**
   * The mel scale: `slaney` (default; used by Whisper and librosa: linear below 1 kHz, bands of equal area) or `htk`
   * (logarithmic throughout, bands of equal height, used by torchaudio).
   */
  scale?: "slaney" | "htk";
  /** Centres each window on its time and mirrors the sound at its ends. Default: true. */
  center?: boolean;
  device?: Device;
}

/** The mel power spectrogram, f32 `[bands, frames]`, of samples `[n]` or a tensor of them. */
export function melSpectrogram(samples: Float32Array | Tensor, options: MelOptions = {}): Tensor {
  const { fft = 400, hop = 160, center = true, device } = options;
  const sound = samples instanceof Tensor ? samples : new Tensor(samples, [samples.length], device ? { device } : {});
  const n = sound.size;
  const half = Math.floor(fft / 2);
  if (sound.rank !== 1 || n === 0 || (center ? n <= half : n < fft)) {
    throw new ValueError("E_VALUE", `a spectrogram with windows of ${fft} samples needs more than [${sound.shape.join(", ")}] samples`);
  }
  if (![fft, hop].every((each) => Number.isInteger(each) && each > 0)) throw new ValueError("E_VALUE", `windows of ${fft} samples every ${hop}`);
  const bins = half + 1;
  return tidy(() => {
    const tensorOptions = { device: device ?? sound.device } as { device: Device };
    const batched = sound.reshape([1, 1, n]);
    const padded = center ? batched.pad([[0, 0], [0, 0], [half, half]], "reflect") : batched;
    const basis = new Tensor(fourierBasis(fft), [2 * bins, 1, fft], tensorOptions.device ? tensorOptions : {});
    const spectrum = padded.conv(basis, null, { stride: hop });
    const frames = spectrum.shape[2] as number;
    const power = spectrum.square().reshape([2, bins, frames]).sum(0);
    const bands = new Tensor(melFilters(options), [options.mels ?? 80, bins], tensorOptions.device ? tensorOptions : {});
    return bands.matmul(power);
  });
}

/**
 * Whisper's input features, f32 `[80, frames]`: the base-10 logarithm of each band's power, limited to at most 8 below
 * the maximum, scaled to about -1 to 1. The samples are at 16 kHz; `pad` first pads or truncates them, for Whisper to
 * 30 seconds (480000).
 */
export function logMel(samples: Float32Array, options: MelOptions & { pad?: number } = {}): Tensor {
  const { pad, ...melOptions } = options;
  let sound = samples;
  if (pad !== undefined) {
    sound = new Float32Array(pad);
    sound.set(samples.subarray(0, pad));
  }
  return tidy(() => {
    const power = melSpectrogram(sound, melOptions);
    // drop the extra frame whose window begins at the very end
    const frames = Math.min(power.shape[1] as number, Math.floor(sound.length / (melOptions.hop ?? 160)) || 1);
    const log = power.narrow(1, 0, frames).maximum(1e-10).log2().mul(Math.LN2 / Math.LN10);
    const floor = log.max(undefined, true).sub(8);
    return log.maximum(floor).add(4).div(4);
  });
}

/** The Fourier basis `[2 * (n / 2 + 1), n]`: cosines, then sines, times a periodic Hann window. */
function fourierBasis(n: number): Float32Array {
  const bins = Math.floor(n / 2) + 1;
  const out = new Float32Array(2 * bins * n);
  const table = [Math.cos, Math.sin].map((wave) => Float64Array.from({ length: n }, (_, i) => wave((2 * Math.PI * i) / n)));
  table.forEach((wave, part) => {
    for (let bin = 0; bin < bins; bin += 1) {
      for (let i = 0; i < n; i += 1) {
        const window = 0.5 - 0.5 * (table[0]?.[i] as number);
        out[(part * bins + bin) * n + i] = window * (wave[(bin * i) % n] as number);
      }
    }
  });
  return out;
}

/** The mel filter bank `[mels, fft / 2 + 1]`: triangular filters of equal width on the mel scale. */
export function melFilters(options: MelOptions = {}): Float32Array {
  const { sampleRate = 16_000, fft = 400, mels = 80, low = 0, high = sampleRate / 2, scale = "slaney" } = options;
  if (!(Number.isInteger(mels) && mels > 0 && low >= 0 && high > low)) throw new ValueError("E_VALUE", `${mels} bands from ${low} to ${high} Hz`);
  const [step, knee, slope] = [200 / 3, 1000, Math.log(6.4) / 27];
  const slaney = scale === "slaney";
  if (!slaney && scale !== "htk") throw new ValueError("E_VALUE", `there is no scale \`${String(scale)}\`; there are slaney, htk`);
  const toMel = (hz: number): number => {
    if (!slaney) return 2595 * Math.log10(1 + hz / 700);
    return hz < knee ? hz / step : knee / step + Math.log(hz / knee) / slope;
  };
  const toHz = (mel: number): number => {
    if (!slaney) return 700 * (10 ** (mel / 2595) - 1);
    return mel < knee / step ? mel * step : knee * Math.exp(slope * (mel - knee / step));
  };
  const [from, to] = [toMel(low), toMel(high)];
  const edges = Array.from({ length: mels + 2 }, (_, i) => toHz(from + ((to - from) * i) / (mels + 1)));
  const bins = Math.floor(fft / 2) + 1;
  const out = new Float32Array(mels * bins);
  for (let m = 0; m < mels; m += 1) {
    const [a, b, c] = [edges[m], edges[m + 1], edges[m + 2]] as [number, number, number];
    for (let bin = 0; bin < bins; bin += 1) {
      const hz = (bin * sampleRate) / fft;
      const height = Math.max(0, Math.min((hz - a) / (b - a), (c - hz) / (c - b)));
      out[m * bins + bin] = slaney ? (height * 2) / (c - a) : height;
    }
  }
  return out;
}
