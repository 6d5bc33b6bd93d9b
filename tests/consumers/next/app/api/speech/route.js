// The same model on the server.
import { readFile } from "node:fs/promises";
import { Tensor, init, load } from "gradloom";

export const dynamic = "force-dynamic";

export async function GET() {
  const device = await init();
  const model = await load(await readFile("public/model.onnx"));
  const inputs = JSON.parse(await readFile("public/inputs.json", "utf8"));
  const { output } = await model.run({
    input: new Tensor(inputs.input, [1, 576]),
    state: new Tensor(inputs.state, [2, 1, 128]),
    sr: BigInt64Array.of(16000n),
  });
  return Response.json({ device: device.kind, speech: await output.item() });
}
