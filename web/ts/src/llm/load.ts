// Loads the files of a model in this thread: headers first, then weights by ranges, which go to the device as they
// arrive.
import { type Host, hostOf } from "../device.js";
import { guard } from "../errors.js";
import { TimeSlices } from "../event-loop.js";
import { type ByteRange, coalesce, forEachLimited } from "../requests.js";
import type { RangeReader, OnBytes } from "../ranges.js";
import { fuseAttention, loadPart, prefetch } from "../wasm-parts.js";
import type { BufferSpec } from "./buffers.js";
import { type ModelKind, type OpenedModel, type RawFiles, openModel } from "./files.js";
import type { LLMOptions, ModelSource } from "./options.js";

/** A model in the making. */
export interface Unfinished {
  createBuffers(list: readonly BufferSpec[]): void;
  dispose(): void;
}

/** The byte range of a tensor in its file. */
interface Entry extends ByteRange {
  number: number;
}

/**
 * Opens a model and passes its weights on. `begin` makes the model once its headers are read, and `finish` completes it
 * once its weights are there; `bytes` are those of all weights.
 */
export async function loadModel<R extends RawFiles, T extends Unfinished>(
  kind: Promise<ModelKind<R>>,
  from: ModelSource,
  options: LLMOptions,
  begin: (host: Host, opened: OpenedModel<R>) => T,
  finish: (model: T, opened: OpenedModel<R>, bytes: number, signal: AbortSignal) => Promise<void>,
): Promise<T> {
  const { signal, onProgress } = options;
  prefetch("graphs");
  const hostLoading = hostOf(options.device);
  for (const each of [hostLoading, kind]) each.catch(() => {});
  let [loaded, total] = [0, 0];
  const onBytes: OnBytes = (bytes) => {
    loaded += bytes;
    // the download store reads whole blocks, which can exceed what was requested
    onProgress?.({ phase: "download", loaded: total > 0 ? Math.min(loaded, total) : loaded, total });
  };
  // one failure aborts everything that is in progress
  const controller = new AbortController();
  const abort = (): void => controller.abort(signal?.reason);
  if (signal?.aborted) abort();
  signal?.addEventListener("abort", abort);
  let model: T | undefined;
  const files: RangeReader[] = [];
  try {
    controller.signal.throwIfAborted();
    onProgress?.({ phase: "parse", loaded: 0, total: 0 });
    const opened = await openModel(await kind, from, { ...options, signal: controller.signal }, onBytes, files);
    const { raw } = opened;
    onProgress?.({ phase: "device", loaded: 0, total: 0 });
    const host = await hostLoading;
    await Promise.all([loadPart(host.engine, "graphs"), fuseAttention(host)]);
    const begun = begin(host, opened);
    model = begun;
    const entries = files.map((): Entry[] => []);
    (guard(() => raw.entries()) as [number, number, number][]).forEach(([file, start, end], number) => entries[file]?.push({ number, start, end }));
    const runs = entries.flatMap((list, at) => {
      const file = files[at] as RangeReader;
      return coalesce(list.sort((a, b) => a.start - b.start), (entry): ByteRange => entry).map((run) => ({ ...run, file }));
    });
    const bytes = entries.flat().reduce((sum, { start, end }) => sum + end - start, 0);
    total = loaded + runs.reduce((sum, { file, start, end }) => sum + (end <= file.head.length ? 0 : end - start), 0);
    const slices = new TimeSlices();
    await forEachLimited(runs, async ({ file, start, end, items }) => {
      const part = end <= file.head.length ? file.head.subarray(start, end) : await file.read(start, end, onBytes);
      for (const { number, start: at, end: to } of items) {
        controller.signal.throwIfAborted();
        begun.createBuffers(guard(() => raw.weight(number, part.subarray(at - start, to - start))) as BufferSpec[]);
        // data that is already in memory arrives without waiting, so yield here
        await slices.yieldIfDue(controller.signal);
      }
    });
    await finish(begun, opened, bytes, controller.signal);
    return begun;
  } catch (error) {
    controller.abort();
    model?.dispose();
    throw signal?.aborted ? signal.reason : error;
  } finally {
    signal?.removeEventListener("abort", abort);
    await Promise.all(files.map((file) => file.close()));
  }
}
