// What a page loads to have its models and tasks in a worker.
export { loadRemote } from "./remote/model.js";
export { openRemote } from "./remote/open.js";
