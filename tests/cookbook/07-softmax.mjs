// Name the likeliest classes. Scores become probabilities, and the best have names.
import { softmax, topK } from "gradloom/vision";

const [first, second] = topK(softmax([1, 4, 2]), 2, ["cat", "dog", "bird"]);
console.log(first.label, first.score.toFixed(3), second.label, second.score.toFixed(3));
//> dog 0.844 bird 0.114
