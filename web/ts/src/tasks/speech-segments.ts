// From the probabilities of speech, frame by frame, to the segments in which somebody speaks.

/** When speech begins and ends. */
export interface SegmentOptions {
  /** The probability above which speech begins; it ends where the probability stays 0.15 below that. Default: 0.5. */
  threshold?: number;
  /** The shortest silence that ends a segment, and the shortest segment, in seconds. Defaults: 0.1 and 0.25. */
  silenceSeconds?: number;
  speechSeconds?: number;
}

/** A part of a sound, in seconds. */
export interface Segment {
  start: number;
  end: number;
}

/** Collects frames, and gives each segment when it is over. */
export class SpeechSegments {
  readonly #frameSeconds: number;
  readonly #options: Required<SegmentOptions>;
  #frames = 0;
  #first = -1;
  #last = -1;

  constructor(frameSeconds: number, { threshold = 0.5, silenceSeconds = 0.1, speechSeconds = 0.25 }: SegmentOptions) {
    this.#frameSeconds = frameSeconds;
    this.#options = { threshold, silenceSeconds, speechSeconds };
  }

  /** Whether a segment has begun and is not over. */
  get speaking(): boolean {
    return this.#first >= 0;
  }

  /** Takes the next frame. */
  push(probability: number): Segment | undefined {
    const { threshold, silenceSeconds } = this.#options;
    const at = this.#frames++;
    if (!this.speaking && probability >= threshold) this.#first = at;
    if (this.speaking && probability >= threshold - 0.15) this.#last = at;
    return this.speaking && (at - this.#last) * this.#frameSeconds >= silenceSeconds ? this.end() : undefined;
  }

  /** Ends the segment that has begun, at the latest at `limit`; undefined if it is too short to count. */
  end(limit = Infinity): Segment | undefined {
    if (!this.speaking) return undefined;
    const segment = { start: this.#first * this.#frameSeconds, end: Math.min(limit, (this.#last + 1) * this.#frameSeconds) };
    this.#first = -1;
    return segment.end - segment.start >= this.#options.speechSeconds ? segment : undefined;
  }
}
