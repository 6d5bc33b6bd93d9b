// Save weights and bring them back. The file is safetensors: PyTorch reads it too.
import { init, loadWeights, nn, saveWeights } from "gradloom";

await init();
const net = new nn.Linear(3, 2);
const file = await saveWeights(net.stateDict());
const other = new nn.Linear(3, 2);
await other.loadStateDict(await loadWeights(file));
console.log((await other.weight.sub(net.weight).abs().sum().item()) === 0);
//> true
