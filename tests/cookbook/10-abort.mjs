// Stop what takes too long. Whatever waits takes a signal.
import { Tensor, init } from "gradloom";

await init();
const control = new AbortController();
control.abort();
try {
  await Tensor.ones([10]).data("f32", { signal: control.signal });
} catch (error) {
  console.log(error.name);
  //> AbortError
}
