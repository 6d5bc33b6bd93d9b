// Writes notes as a standard MIDI file.
import type { Note } from "./notes.js";

/** Ticks per quarter note; at 120 beats per minute a quarter note lasts half a second. */
const TICKS_PER_QUARTER = 480;

/** Converts notes to a standard MIDI file: format 0, piano, 120 beats per minute. */
export function midi(list: readonly Note[]): Uint8Array<ArrayBuffer> {
  const tick = (seconds: number): number => Math.max(0, Math.round(seconds * 2 * TICKS_PER_QUARTER));
  // at equal times, note ends come before note starts
  const events = list
    .flatMap(({ start, end, pitch, amplitude }) => [
      { at: tick(start), bytes: [0x90, pitch, Math.min(127, Math.max(1, Math.round(amplitude * 127)))] },
      { at: Math.max(tick(start) + 1, tick(end)), bytes: [0x80, pitch, 0] },
    ])
    .sort((a, b) => a.at - b.at || (a.bytes[0] as number) - (b.bytes[0] as number));
  const track = [0, 0xff, 0x51, 3, 0x07, 0xa1, 0x20];
  let lastTick = 0;
  for (const { at, bytes } of events) {
    track.push(...variableLength(at - lastTick), ...bytes);
    lastTick = at;
  }
  track.push(0, 0xff, 0x2f, 0);
  const uint32 = (n: number): number[] => [n >>> 24, (n >>> 16) & 0xff, (n >>> 8) & 0xff, n & 0xff];
  const text = (name: string): number[] => [...name].map((c) => c.charCodeAt(0));
  const header = [...text("MThd"), ...uint32(6), 0, 0, 0, 1, TICKS_PER_QUARTER >> 8, TICKS_PER_QUARTER & 0xff];
  return Uint8Array.from([...header, ...text("MTrk"), ...uint32(track.length), ...track]);
}

/** Encodes a variable-length quantity: seven bits per byte, most significant first. */
function variableLength(n: number): number[] {
  const out = [n & 0x7f];
  for (let rest = n >>> 7; rest > 0; rest >>>= 7) out.unshift(0x80 | (rest & 0x7f));
  return out;
}
