// The script of a worker thread of the WASM device, for pages and Node: instantiates kernel modules on the shared
// memory and runs the driver's `serve` loop. web/src/threads.rs defines the messages.

interface Message {
  kind: "hello" | "start" | "load" | "scratch" | "serve" | "stop";
  driver: WebAssembly.Module;
  module: WebAssembly.Module;
  memory: WebAssembly.Memory;
  sync: number;
  thread: number;
  base: number;
  free: number[];
  scratch: number;
  service: number;
}

interface Driver {
  serve: (thread: number, service: number, scratch: number, sync: number) => void;
  fail: (sync: number) => void;
}

let imports: WebAssembly.Imports;
let table: WebAssembly.Table;
let driver: Driver;
let sync = 0;
let thread = 0;
let scratch = 0;
let reply: (message: string) => void;

function handle(message: Message, stop: () => void): void {
  switch (message.kind) {
    case "hello":
      reply("alive");
      return;
    case "start": {
      table = new WebAssembly.Table({ element: "anyfunc", initial: 64 });
      const s = new WebAssembly.Global({ value: "i32", mutable: true }, 0);
      imports = { e: { m: message.memory, t: table, s, n: () => performance.now() } };
      driver = new WebAssembly.Instance(message.driver, imports).exports as unknown as Driver;
      ({ sync, thread } = message);
      return;
    }
    case "load":
      // clear freed slots first, since the new module's kernels may reuse them
      for (const at of message.free) if (at < table.length) table.set(at, null);
      Object.entries(new WebAssembly.Instance(message.module, imports).exports).forEach(([i, kernel]) => {
        const at = message.base + Number(i);
        if (at >= table.length) table.grow(at);
        table.set(at, kernel as () => void);
      });
      return;
    case "scratch":
      scratch = message.scratch;
      return;
    case "serve":
      for (;;) {
        try {
          return driver.serve(thread, message.service, scratch, sync);
        } catch (error) {
          console.error("gradloom: a kernel failed:", error);
          driver.fail(sync);
        }
      }
    case "stop":
      stop();
  }
}

const host = globalThis as unknown as {
  process?: { type?: string; versions?: { node?: string } };
  onmessage: ((event: { data: Message }) => void) | null;
  postMessage: (message: string) => void;
  close: () => void;
};

// Electron's workers may have Node's `process` too
if (host.process?.versions?.node === undefined || host.process.type === "worker") {
  host.onmessage = ({ data }) => handle(data, () => host.close());
  reply = (message) => host.postMessage(message);
  reply("ready");
} else {
  // no await here: Vite turns workers into classic scripts by default
  const builtin = (name: string): Promise<any> => import(/* @vite-ignore */ /* webpackIgnore: true */ name);
  void builtin("node:worker_threads").then(({ parentPort }) => {
    parentPort.on("message", (data: Message) => handle(data, () => parentPort.close()));
    reply = (message) => parentPort.postMessage(message);
    reply("ready");
  });
}

export {};
