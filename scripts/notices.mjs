// `npm run notices`: THIRD-PARTY-NOTICES.txt anew, after a change of the crates inside the npm package.
import { writeNotices } from "./lib/notices.mjs";
import { main } from "./lib/run.mjs";

main(writeNotices);
