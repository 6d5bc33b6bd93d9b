// Write a kernel as loops, in the text that the compiler prints of its own. It is optimised for every device, WebAssembly too.
import { Tensor, init, irKernel } from "gradloom";

await init();
const distances = await irKernel(
  `%0 i32 = const[3]            // points, each of 2 numbers
   %1 i32 = const[2]
   %2 f32 = param[slot=0 len=9] // what is written: 3 by 3
   %3 f32 = param[slot=1 len=6] // what is read
   %4 i32 = range[id=0 loop] %0
   %5 i32 = range[id=1 loop] %0
   %6 i32 = range[id=2 reduce] %1
   %7 i32 = mul %4 %1
   %8 i32 = add %7 %6
   %9 f32 = index %3 %8
   %10 f32 = load %9
   %11 i32 = mul %5 %1
   %12 i32 = add %11 %6
   %13 f32 = index %3 %12
   %14 f32 = load %13
   %15 f32 = sub %10 %14
   %16 f32 = mul %15 %15
   %17 f32 = reduce[add] %16 %6
   %18 f32 = sqrt %17
   %19 i32 = mul %4 %0
   %20 i32 = add %19 %5
   %21 f32 = index %2 %20
   %22 void = store %21 %18
   %23 void = sink %22
   roots %23`,
);
const points = new Tensor([[0, 0], [3, 4], [6, 8]]);
console.log(await distances.launch([points], [3, 3]).tolist());
//> [ [ 0, 5, 10 ], [ 5, 0, 5 ], [ 10, 5, 0 ] ]
