// Write a layer of your own. Parameters are found by the names of the fields.
import { Tensor, init, nn } from "gradloom";

await init();
class Residual extends nn.Module {
  inner = new nn.Linear(8, 8);
  norm = new nn.LayerNorm(8);
  forward(x) {
    return x.add(this.inner.forward(this.norm.forward(x)).gelu());
  }
}

const net = new Residual();
console.log(Object.keys(net.stateDict()).join(" "));
//> inner.weight inner.bias norm.weight norm.bias
console.log(net.forward(Tensor.ones([2, 8])).shape.join(" "));
//> 2 8
