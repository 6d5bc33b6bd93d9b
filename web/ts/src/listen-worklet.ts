// The script of `listen` in the browser's audio thread: posts the mean of all channels, some milliseconds at a time. It
// imports nothing, because bundlers copy it as it is.

/** The part of the audio thread's global scope that is used here, since the type library lacks it. */
declare const AudioWorkletProcessor: new () => { readonly port: MessagePort };
declare function registerProcessor(name: string, processor: object): void;

/** Samples per message. */
const SIZE = 1024;

class Listener extends AudioWorkletProcessor {
  #samples = new Float32Array(SIZE);
  #count = 0;

  process([channels]: Float32Array[][]): boolean {
    const [first] = channels ?? [];
    for (let i = 0; first && i < first.length; i += 1) {
      let sum = 0;
      for (const channel of channels as Float32Array[]) sum += channel[i] as number;
      this.#samples[this.#count++] = sum / (channels as Float32Array[]).length;
      if (this.#count < SIZE) continue;
      this.port.postMessage(this.#samples, [this.#samples.buffer]);
      this.#samples = new Float32Array(SIZE);
      this.#count = 0;
    }
    return true;
  }
}

registerProcessor("gradloom-listen", Listener);
export {};
