// What a page loads to have its models in a worker.
export { loadRemote } from "./remote/model.js";
