// A page that blocks its thread: only the runner's own clock can end it.
import { test } from "harness";

test(
  "blocks",
  () => {
    for (;;);
  },
  { timeoutMs: 10 },
);
