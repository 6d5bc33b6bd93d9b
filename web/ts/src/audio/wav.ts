// Reads WAV files (RIFF) without the browser: integers of 8 to 32 bits, floats, and the two companded encodings of
// telephony. Writes WAV files with floats or 16-bit integers.
import { FormatError, UnsupportedError } from "../errors.js";

/** A sound: samples from -1 to 1, one array for each channel. */
export interface Sound {
  channels: Float32Array[];
  sampleRate: number;
}

/** The most channels accepted, more than any recording has. */
const MAX_CHANNELS = 256;

/** Whether this is a WAV file, by its first bytes. */
export function isWav(bytes: Uint8Array): boolean {
  const fourCharacters = (at: number): string => String.fromCharCode(...bytes.subarray(at, at + 4));
  return bytes.length >= 12 && (fourCharacters(0) === "RIFF" || fourCharacters(0) === "RF64") && fourCharacters(8) === "WAVE";
}

type SampleReader = (view: DataView, at: number) => number;

function mulaw(code: number): number {
  const x = ~code & 255;
  const size = (((x & 15) << 3) + 132) << ((x >> 4) & 7);
  return (x & 128 ? 132 - size : size - 132) / 32768;
}

function alaw(code: number): number {
  const x = code ^ 0x55;
  const exponent = (x >> 4) & 7;
  const size = exponent === 0 ? ((x & 15) << 4) + 8 : (((x & 15) << 4) + 0x108) << (exponent - 1);
  return (x & 128 ? size : -size) / 32768;
}

/** The reader of a sample, by format code and bit depth. */
function sampleReader(format: number, bits: number): SampleReader | undefined {
  const readers: Record<string, SampleReader> = {
    "1/8": (view, at) => (view.getUint8(at) - 128) / 128,
    "1/16": (view, at) => view.getInt16(at, true) / 32768,
    "1/24": (view, at) => ((view.getInt8(at + 2) << 16) | view.getUint16(at, true)) / 8388608,
    "1/32": (view, at) => view.getInt32(at, true) / 2147483648,
    "3/32": (view, at) => view.getFloat32(at, true),
    "3/64": (view, at) => view.getFloat64(at, true),
    "6/8": (view, at) => alaw(view.getUint8(at)),
    "7/8": (view, at) => mulaw(view.getUint8(at)),
  };
  return readers[`${format}/${bits}`];
}

/** Reads a WAV file. A truncated file gives the samples that are present. */
export function readWav(bytes: Uint8Array): Sound {
  if (!isWav(bytes)) throw new FormatError("E_FORMAT", "wav: not a RIFF/WAVE file");
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let sampleFormat: { format: number; channels: number; sampleRate: number; bits: number } | undefined;
  for (let at = 12; at + 8 <= bytes.length; ) {
    const id = String.fromCharCode(...bytes.subarray(at, at + 4));
    const length = view.getUint32(at + 4, true);
    const body = at + 8;
    if (id === "fmt " && length >= 16 && body + length <= bytes.length) {
      let format = view.getUint16(body, true);
      // the format "extensible" stores the actual format code before a fixed suffix
      if (format === 0xfffe && length >= 26) format = view.getUint16(body + 24, true);
      const [channels, bits] = [view.getUint16(body + 2, true), view.getUint16(body + 14, true)];
      sampleFormat = { format, channels, sampleRate: view.getUint32(body + 4, true), bits };
    } else if (id === "data") {
      if (!sampleFormat) throw new FormatError("E_FORMAT", "wav: samples come before their format");
      const { format, channels, sampleRate, bits } = sampleFormat;
      const read = sampleReader(format, bits);
      if (!read) throw new UnsupportedError("E_UNSUPPORTED", `wav: format ${format} with ${bits} bits is not read here`, { hint: "convert it to 16-bit PCM" });
      if (channels < 1 || channels > MAX_CHANNELS || sampleRate < 1) {
        throw new FormatError("E_FORMAT", `wav: ${channels} channels, ${sampleRate} samples a second`);
      }
      // a file that was streamed announces more data than it has, because its length was unknown
      const sampleBytes = bits / 8;
      const frames = Math.floor(Math.min(length, bytes.length - body) / (sampleBytes * channels));
      const out = Array.from({ length: channels }, () => new Float32Array(frames));
      out.forEach((samples, c) => {
        for (let i = 0; i < frames; i += 1) samples[i] = read(view, body + (i * channels + c) * sampleBytes);
      });
      return { channels: out, sampleRate };
    }
    at = body + length + (length & 1);
  }
  throw new FormatError("E_FORMAT", "wav: there are no samples in it");
}

/** Writes a WAV file of 16-bit integers, or with `float` of 32-bit floats. */
export function writeWav({ channels, sampleRate }: Sound, { float = false }: { float?: boolean } = {}): Uint8Array<ArrayBuffer> {
  const frames = Math.min(...channels.map(({ length }) => length));
  const sampleBytes = float ? 4 : 2;
  const size = frames * channels.length * sampleBytes;
  const bytes = new Uint8Array(44 + size);
  const view = new DataView(bytes.buffer);
  const text = (at: number, word: string): void => bytes.set([...word].map((c) => c.charCodeAt(0)), at);
  text(0, "RIFF");
  view.setUint32(4, 36 + size, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, float ? 3 : 1, true);
  view.setUint16(22, channels.length, true);
  view.setUint32(24, sampleRate, true);
  view.setUint32(28, sampleRate * channels.length * sampleBytes, true);
  view.setUint16(32, channels.length * sampleBytes, true);
  view.setUint16(34, 8 * sampleBytes, true);
  text(36, "data");
  view.setUint32(40, size, true);
  let at = 44;
  for (let i = 0; i < frames; i += 1) {
    for (const samples of channels) {
      const v = samples[i] as number;
      if (float) view.setFloat32(at, v, true);
      else view.setInt16(at, Math.max(-32768, Math.min(32767, Math.round(v * 32768))), true);
      at += sampleBytes;
    }
  }
  return bytes;
}
