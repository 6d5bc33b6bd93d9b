// configs: default
// The same files in the Cache API, as in browsers whose private files only workers can write.
import { cases } from "../page/downloads.mjs";

delete FileSystemFileHandle.prototype.createWritable;
cases("cache");
