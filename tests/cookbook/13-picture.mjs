// Turn a picture into a tensor and back. In a page it may be an element, a file, a canvas or a frame of a video.
import { init } from "gradloom";
import { fromImage, toImageData } from "gradloom/vision";

await init();
const picture = { data: new Uint8ClampedArray(4 * 64 * 48).fill(255), width: 64, height: 48 };
const x = await fromImage(picture, { size: 32, fit: "cover" });
console.log(x.shape.join(" "));
//> 1 3 32 32
const { width, data } = await toImageData(x);
console.log(width, data[0]);
//> 32 255
