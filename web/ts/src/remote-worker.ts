// The script of the worker that a page's models and tasks run in: one file with all that it imports, as bundlers make classic scripts of
// workers unless told otherwise, and those cannot be in several.
import { type Thread, answer } from "./remote/calls.js";
import { readElsewhere, taskAnswers } from "./remote/tasks.js";
import { answers } from "./remote/thread.js";

readElsewhere(answer(globalThis as unknown as Thread, { ...answers, ...taskAnswers }));
