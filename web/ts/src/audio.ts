// Audio: reading, resampling and spectrograms. The entry `gradloom/audio`.
import "./page-chunks.js";
export { type FbankOptions, fbank } from "./audio/fbank.js";
export { type MelOptions, logMel, melFilters, melSpectrogram } from "./audio/mel.js";
export { type ListenOptions, type LiveAudioSource, StreamResampler, listen } from "./audio/listen.js";
export type { AudioBufferLike, AudioOptions, AudioSource, ChunkOptions } from "./audio/sound.js";
export { chunks, fromAudio, readAudio, resample } from "./audio/sound.js";
export { type Sound, isWav, readWav, writeWav } from "./audio/wav.js";
