// Keep the best of boxes that overlap. Of two that are nearly the same, the one with the higher score stays.
import { nms } from "gradloom/vision";

const boxes = [[0, 0, 10, 10], [1, 1, 11, 11], [30, 30, 40, 40]];
console.log(nms(boxes, [0.6, 0.9, 0.5], { iou: 0.4 }).join(" "));
//> 1 2
