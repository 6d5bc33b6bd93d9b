// The messages between a page and its sandbox.

/** A result to display. */
export type Item =
  | { kind: "text"; level: "log" | "info" | "warn" | "error"; text: string }
  | { kind: "tensor"; title: string; shape: number[]; dtype: string; values: Float32Array }
  | { kind: "image"; title: string; image: ImageData }
  | { kind: "point"; name: string; value: number };

/** A request to run code. `level` is that of `init({ debug })`. */
export interface Order {
  id: number;
  code: string;
  device: string;
  level: number;
  /** A file that the code can use under the name `file`. */
  file?: Blob | undefined;
}

export interface Failed {
  name: string;
  message: string;
  hint?: string | undefined;
  code?: string | undefined;
}

/** Messages about a run. */
export interface Report {
  id: number;
  ready?: boolean;
  started?: { device: string; threads: number };
  item?: Item;
  log?: string;
  done?: number;
  error?: Failed;
}
