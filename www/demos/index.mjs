// The demos in the gallery's order. `files` lists what a page fetches besides the engine: folders of models, or data.
export const demos = [
  {
    slug: "digits", title: "A digit reader that trains here", train: true,
    card: "Watch it learn 4,000 digits, then let it read yours.",
    text: "A small convolutional network learns from 4,000 handwritten digits and is tested on 1,000 others. Then it reads what you draw.",
    size: "3.9 MB of digits",
  },
  {
    slug: "style", title: "Paint your camera",
    card: "26 styles, mixed as you like, on a picture or live.",
    text:
      "One small network knows 26 styles of painting and can mix two of them. " +
      "Give it a picture, drop one on the page, or let it paint what your camera sees.",
    size: "0.8 MB",
  },
  {
    slug: "upscale", title: "Twice the size",
    card: "A small ESRGAN draws the pixels that are missing.",
    text: "An ESRGAN makes pictures twice as wide and high, tile by tile. Pull the slider to compare it with what a browser does.",
    size: "0.9 MB",
  },
  {
    slug: "cutout", title: "Cut people out",
    card: "Find the person in a picture or before your camera.",
    text: "MediaPipe's network finds the person in a picture. What is left may go before another background, live from the camera too.",
    size: "0.2 MB",
  },
  {
    slug: "classify", title: "What is in the picture?",
    card: "A thousand things, from cats to espresso, live on the camera.",
    text: "EfficientNet-Lite0 knows 1,000 things. Its weights are the file that PyTorch saved, just as it is.",
    size: "18.8 MB",
  },
  {
    slug: "faces", title: "Faces and things",
    card: "Boxes around faces, or around cats, cups and cars, live.",
    text: "BlazeFace finds faces and six points of each, an SSD 23 kinds of things: in a picture, or in every frame of your camera.",
    size: "0.2 MB for faces, 10 MB for things",
  },
  {
    slug: "transcribe", title: "Speech to text",
    card: "Speak or drop a recording: Whisper writes it down.",
    text: "OpenAI's Whisper writes down what is said in English, word by word as it comes, from your microphone or a recording.",
    size: "77 MB, once",
  },
  {
    slug: "speech", title: "Is anyone speaking?",
    card: "Voice activity, 32 ms at a time, from the microphone; in files also singing and music.",
    text: "Silero's detector listens to 32 milliseconds at a time and says how likely it is that somebody speaks. " +
      "FireRedVAD tells speech, singing and music apart.",
    size: "2.8 MB, and 1.2 MB for singing and music",
  },
  {
    slug: "files", title: "What kind of file is it?",
    card: "214 kinds, told by what is inside, not by the name.",
    text: "Magika tells 214 kinds of files by their content, not their name. It reads the first and last kilobytes and nothing else.",
    size: "3.2 MB",
  },
  {
    slug: "read", title: "Read a picture",
    card: "A receipt, a sign, a page: what is written, as text.",
    text: "PP-OCR finds the lines of a picture, turns those that stand on their heads and reads them, Latin letters and Chinese. " +
      "Copy the text; the picture stays here.",
    size: "15.6 MB",
  },
  {
    slug: "notes", title: "Music to notes",
    card: "Hum a tune, see it as a piano roll, save it as MIDI.",
    text: "Spotify's Basic Pitch hears which notes a sound is made of: a tune of this page, a file, or you before the microphone.",
    size: "0.2 MB",
  },
  {
    slug: "siren", title: "A picture as a network", train: true,
    card: "5,000 numbers learn a picture, and draw it in any size.",
    text: "A network of sines learns which colour is where. It knows no points, so it draws what it has learnt in any size.",
    size: "nothing to fetch",
  },
  {
    slug: "writer", title: "A GPT learns to write", train: true,
    card: "From noise to sonnets in a few hundred steps, before your eyes.",
    text: "A small GPT reads three sonnets, or a text of yours, letter by letter, and writes what it has learnt so far.",
    size: "nothing to fetch",
  },
  {
    slug: "dreamer", title: "Digits out of noise", train: true,
    card: "A small generative model learns here what digits look like, then draws its own.",
    text: "From 4,000 handwritten digits a network learns what is behind noise. Then it takes noise away, move by move, until a digit of its own is left.",
    size: "3.9 MB of digits",
  },
  {
    slug: "cells", title: "Cells that heal",
    card: "One cell grows into a moth. Hurt it, and watch it heal.",
    text:
      "Every cell sees its eight neighbours and decides by one small network what to become. Nobody tells them where they are. " +
      "The network was trained by this library.",
    size: "8 kB",
  },
  {
    slug: "compare", title: "Your device, two runtimes",
    card: "Six models here and in onnxruntime-web, timed on your device.",
    text: "The same models, the same inputs, the same device: gradloom beside onnxruntime-web, in a table that you can share.",
    size: "13 MB of models, and 14 or 27 MB of the other runtime",
  },
  {
    slug: "search", title: "Search by meaning",
    card: "Your notes and files, found by what they say, not by their words.",
    text: "MiniLM turns each passage of your texts into 384 numbers, and your question too. What points the same way is found, without a word in common.",
    size: "91 MB, once",
  },
  {
    slug: "chat", title: "Talk with a language model",
    card: "A small llama of our own, or any GGUF file that you drop.",
    text:
      "A llama of two million weights, which this library trained on the King James Bible, answers in its words. " +
      "Drop a GGUF file to talk with another model; it stays in the page.",
    size: "2.2 MB",
  },
];
