// Tell what went wrong. Errors have a stable code beside their words.
import { Tensor, init } from "gradloom";

await init();
try {
  new Tensor([1, 2]).add(new Tensor([1, 2, 3]));
} catch (error) {
  console.log(error.code, error.message);
  //> E_SHAPE add: shape [2] does not fit [3]
}
