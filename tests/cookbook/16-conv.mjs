// Blur with a convolution. The weight is an ordinary tensor.
import { Tensor, init } from "gradloom";

await init();
const picture = Tensor.eye(5).reshape([1, 1, 5, 5]);
const blur = Tensor.full([1, 1, 3, 3], 1 / 9);
const blurred = await picture.conv(blur, null, { padding: 1 }).reshape([5, 5]).tolist();
console.log(blurred[2].map((v) => v.toFixed(2)).join(" "));
//> 0.11 0.22 0.33 0.22 0.11
