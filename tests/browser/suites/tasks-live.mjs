// configs: sound
// Tasks on sound that is heard while it plays: a recorded sentence stands for a microphone.
import { transcribeLive, vadLive } from "gradloom/tasks";
import { assert, assertEqual, errorOf, note, params, test } from "harness";

const speech = () => new Audio("/models/whisper_tiny_en/speech.wav");

/** A recipe, whose large files are in another folder here. */
async function model(name) {
  const text = await (await fetch(`/models/${name}/recipe.json`)).text();
  const [cache, own] = ["/cache/", `/models/${name}/`].map((path) => new URL(path, location.href).href);
  const recipe = text.replaceAll("../../../.cache/", cache).replace('"model.onnx"', `"${own}model.onnx"`);
  return { model: `data:application/json,${encodeURIComponent(recipe)}` };
}

/** The sentence as a stream that goes on in silence, as a microphone does. */
async function microphone() {
  const context = new AudioContext();
  const file = await (await fetch("/models/whisper_tiny_en/speech.wav")).arrayBuffer();
  const player = new AudioBufferSourceNode(context, { buffer: await context.decodeAudioData(file) });
  const end = context.createMediaStreamDestination();
  player.connect(end);
  player.start(context.currentTime + 0.3);
  return { stream: end.stream, stop: () => (end.stream.getTracks()[0].stop(), context.close()) };
}

// a page of another configuration may not start sound
if (params.get("config") === "sound") {
  test("vadLive: an element that plays, piece by piece, with the segments of its sentence", async () => {
    const audio = speech();
    await audio.play();
    const pieces = [];
    for await (const piece of vadLive(audio, await model("silero_vad_op18_ifless"))) pieces.push(piece);
    pieces.slice(1).forEach(({ start }, i) => assert(Math.abs(start - pieces[i].end) < 1e-6, `a gap after ${pieces[i].end}`));
    const segments = pieces.flatMap(({ segments: all }) => all);
    const spoken = segments.reduce((sum, { start, end }) => sum + end - start, 0);
    await note(`${segments.length} segments, ${spoken.toFixed(2)} of ${audio.duration.toFixed(2)} s`);
    assert(segments.length >= 1 && spoken > 1 && spoken <= audio.duration + 1);
    assert(pieces.some(({ speaking }) => speaking) && !pieces.at(-1).speaking);
  });

  test("transcribeLive: a sentence's words as they come, and the sentence after its pause, while the stream goes on", async () => {
    const { stream, stop } = await microphone();
    const results = [];
    let heard = 0;
    const options = { ...(await model("whisper_tiny_en")), onSound: (samples) => (heard += samples.length) };
    let heardAtEnd = 0;
    for await (const result of transcribeLive(stream, options)) {
      results.push(result);
      if (!result.final) continue;
      heardAtEnd = heard;
      break;
    }
    const last = results.at(-1);
    assert(/^He was not an .*posed young man\.$/.test(last.text), last.text);
    assert(results.length > 3, `${results.length} results`);
    results.slice(0, -1).forEach(({ text, final, start, end }, i) => {
      assert(!final && text.startsWith(results[Math.max(0, i - 1)].text), `${text} after ${results[i - 1]?.text}`);
      assertEqual([start, end], [last.start, last.end]);
    });
    assert(heardAtEnd / 16_000 > last.end, "nothing is heard while a sentence is transcribed");
    assertEqual(stream.getTracks()[0].readyState, "live");
    stop();
  });

  test("transcribeLive: with a detector; what was begun is written when the sound ends", async () => {
    const audio = speech();
    await audio.play();
    const results = [];
    const { model: detector } = await model("silero_vad_op18_ifless");
    const how = { ...(await model("whisper_tiny_en")), detector, pauseSeconds: 20 };
    for await (const { final, text } of transcribeLive(audio, how)) if (final) results.push(text);
    assertEqual(results.length, 1);
    assert(/posed young man\.$/.test(results[0]), results[0]);
  });

  test("a signal ends it with its reason, also while nothing is said", async () => {
    const { stream, stop } = await microphone();
    for (const live of [transcribeLive, vadLive]) {
      const controller = new AbortController();
      const name = live === transcribeLive ? "whisper_tiny_en" : "silero_vad_op18_ifless";
      const how = await model(name);
      const running = errorOf(async () => {
        for await (const _ of live(stream, { ...how, signal: controller.signal })) continue;
      });
      setTimeout(() => controller.abort(new Error("enough")), 50);
      assertEqual((await running).message, "enough");
    }
    stop();
    const how = await model("whisper_tiny_en");
    const error = await errorOf(() => transcribeLive(stream, how).next());
    assertEqual(error.code, "E_VALUE");
  });
}
