// Says what is wrong with a value that is no sound.
import { ValueError } from "../errors.js";

/** What to do with things that hold a sound, but are none, by the names of their classes. */
const HINTS: Readonly<Record<string, string>> = {
  Float32Array: "samples come with their rate: { channels: [samples], sampleRate: 16000 }",
  Array: "samples come with their rate: { channels: [Float32Array.from(samples)], sampleRate: 16000 }",
  MediaStream: "`transcribeLive` and `vadLive` of gradloom/tasks hear a stream, and `listen` of gradloom/audio gives its sound in parts",
  HTMLAudioElement: "give the address of its file, audio.currentSrc; `transcribeLive` and `vadLive` hear it while it plays",
  HTMLVideoElement: "give the address of its file, video.currentSrc; `transcribeLive` and `vadLive` hear it while it plays",
};

/** Throws `E_VALUE`, with advice, for a value that is no source of a sound. */
export function checkSound(source: unknown): void {
  const { channels, sampleRate } = (source ?? {}) as { channels?: unknown; sampleRate?: unknown };
  const kind = Object.prototype.toString.call(source).slice(8, -1);
  if (/^(String|URL|Blob|File|ArrayBuffer|Uint8Array|AudioBuffer)$/.test(kind) || typeof sampleRate === "number") return;
  const hint = HINTS[kind] ?? (channels === undefined ? undefined : "{ channels, sampleRate } needs the rate too, in Hz");
  throw new ValueError("E_VALUE", "a sound comes from a URL, a File or Blob, the bytes of a file, an AudioBuffer or { channels, sampleRate }", { hint });
}
