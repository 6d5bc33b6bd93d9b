// One line to a result: the entry `gradloom/tasks`. A thin layer over parts that are all public: `gradloom/vision`, `gradloom/audio`, `load`.
export { type Face, detectFaces } from "./tasks/faces.js";
export { type FileKind, fileType } from "./tasks/files.js";
export { type Found, type Picture, classify, detect, removeBackground, stylize, upscale } from "./tasks/pictures.js";
export { type ImageRecipe, type ModelNotice, type Opened, type Recipe, type TaskName, type TaskOptions, open, unload } from "./tasks/recipe.js";
export { type Speech, type Transcript, type VadOptions, transcribe, vad } from "./tasks/sounds.js";
export { type TextBox, detectText } from "./tasks/text-boxes.js";
export { type ReadText, type TextLine, readText } from "./tasks/read-text.js";
export { type Note, type NotesOptions, midi, notes } from "./tasks/notes.js";
export { embed, similar } from "./tasks/texts.js";
