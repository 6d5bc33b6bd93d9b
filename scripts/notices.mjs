// `npm run notices`: regenerates THIRD-PARTY-NOTICES.txt, after a change of the crates inside the npm package.
import { writeNotices } from "./lib/notices.mjs";
import { main } from "./lib/run.mjs";

main(writeNotices);
