// What a page and its sandbox say to each other.

/** Something to show. */
export type Item =
  | { kind: "text"; level: "log" | "info" | "warn" | "error"; text: string }
  | { kind: "tensor"; title: string; shape: number[]; dtype: string; values: Float32Array }
  | { kind: "image"; title: string; image: ImageData }
  | { kind: "point"; name: string; value: number };

/** Run this. `level` is that of `init({ debug })`. */
export interface Order {
  id: number;
  code: string;
  device: string;
  level: number;
  /** A file that the code may use, as `file`. */
  file?: Blob | undefined;
}

export interface Failed {
  name: string;
  message: string;
  hint?: string | undefined;
  code?: string | undefined;
}

/** What comes of it. */
export interface Report {
  id: number;
  ready?: boolean;
  started?: { device: string; threads: number };
  item?: Item;
  log?: string;
  done?: number;
  error?: Failed;
}
