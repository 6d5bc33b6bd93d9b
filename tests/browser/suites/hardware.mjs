// Shaders as a GPU of hardware gets them, on the software adapter: workgroup tiles, shared reductions, subgroups, f16 in memory.
import { Tensor, init } from "gradloom";
import { assertClose, test } from "harness";

const numbers = (n) => Float32Array.from({ length: n }, (_, i) => ((i * 37) % 101) / 50 - 1);

test("long rows, products and f16 as on a GPU of hardware", async () => {
  await init({ device: "webgpu", asHardware: true });
  const [rows, n] = [70, 512];
  const data = numbers(rows * n);
  const x = new Tensor(data, [rows, n]);
  const soft = Array.from({ length: rows }, (_, r) => {
    const e = Array.from(data.subarray(r * n, (r + 1) * n), Math.exp);
    const sum = e.reduce((a, b) => a + b, 0);
    return e.map((v) => v / sum);
  }).flat();
  assertClose(await x.softmax(-1).data(), soft, { tolerance: 1e-5 });
  const b = new Tensor(data, [n, rows]);
  const product = Array.from({ length: rows * rows }, (_, at) => {
    let sum = 0;
    for (let k = 0; k < n; k += 1) sum += data[Math.floor(at / rows) * n + k] * data[k * rows + (at % rows)];
    return sum;
  });
  assertClose(await x.matmul(b).data(), product, { tolerance: 1e-4 });
  // an odd number of halves: 1/8 and its kin are exact
  const half = new Tensor(Float32Array.from({ length: 35 }, (_, i) => i / 8), [5, 7], { dtype: "f16" });
  const doubled = Array.from({ length: 35 }, (_, i) => i / 4);
  assertClose(await half.add(half).data(), doubled, { tolerance: 0 });
});
