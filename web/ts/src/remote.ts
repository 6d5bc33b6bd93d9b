// The page's side of models and tasks in the worker.
export { loadRemote } from "./remote/model.js";
export { openRemote } from "./remote/open.js";
