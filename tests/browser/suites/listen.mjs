// configs: sound
// alone: a busy machine plays with gaps
// The sound of a stream, piece by piece: a tone stands for a microphone.
import { listen } from "gradloom/audio";
import { assert, assertEqual, errorOf, params, test } from "harness";

const HZ = 440;

/** A stream with a tone. */
function microphone() {
  const context = new AudioContext();
  const tone = new OscillatorNode(context, { frequency: HZ });
  const gain = new GainNode(context, { gain: 0.5 });
  const end = context.createMediaStreamDestination();
  tone.connect(gain).connect(end);
  tone.start();
  const [track] = end.stream.getAudioTracks();
  return { stream: end.stream, track, rate: context.sampleRate, stop: () => (track.stop(), context.close()) };
}

const join = (pieces) => Float32Array.from(pieces.flatMap((piece) => [...piece]));

/** Where samples are no tone of this frequency: x[n + 1] + x[n - 1] = 2 cos(w) x[n] holds for a tone. */
function worstGap(samples, rate) {
  const twice = 2 * Math.cos((2 * Math.PI * HZ) / rate);
  let most = 0;
  for (let i = 1; i + 1 < samples.length; i += 1) most = Math.max(most, Math.abs(samples[i + 1] + samples[i - 1] - twice * samples[i]));
  return most;
}

// a page of another configuration may not start sound
if (params.get("config") === "sound") {
  test("a stream gives its sound without gaps, at the rate and in the size that are asked for", async () => {
    const { stream, track, stop } = microphone();
    for (const [source, options, rate, size] of [[stream, {}, 16_000, 1600], [track, { sampleRate: 24_000, size: 512 }, 24_000, 512]]) {
      // a processor that others keep busy drops sound before we get it: a gap of ours would be in every try
      let samples;
      for (let tries = 0; tries < 3 && !(samples && worstGap(samples, rate) < 1e-3); tries += 1) {
        const pieces = [];
        for await (const piece of listen(source, options)) {
          // the beginning may be silence
          if (pieces.length > 0 || piece.every((v, i) => i < 9 || v !== 0 || piece[i - 1] !== 0)) pieces.push(piece);
          if (pieces.length === 12) break;
        }
        assertEqual(new Set(pieces.map(({ length }) => length)).size, 1);
        assertEqual(pieces[0].length, size);
        samples = join(pieces.slice(1));
      }
      const loudest = samples.reduce((most, v) => Math.max(most, Math.abs(v)), 0);
      assert(Math.abs(loudest - 0.5) < 0.01, `the loudest sample is ${loudest}`);
      assert(worstGap(samples, rate) < 1e-3, `off by ${worstGap(samples, rate)}`);
      const crossings = samples.filter((v, i) => i > 0 && v >= 0 !== samples[i - 1] >= 0).length;
      assert(Math.abs(crossings - (2 * HZ * samples.length) / rate) < 3, `${crossings} crossings`);
    }
    assertEqual(track.readyState, "live");
    stop();
  });

  test("it ends with its track, and by a signal", async () => {
    const first = microphone();
    let count = 0;
    for await (const _ of listen(first.stream)) if ((count += 1) === 3) first.stop();
    assert(count >= 3);
    const { stream, stop } = microphone();
    const stopper = new AbortController();
    const error = await errorOf(async () => {
      for await (const _ of listen(stream, { signal: stopper.signal })) stopper.abort();
    });
    assertEqual(error.name, "AbortError");
    stop();
  });

  test("streams without sound say so", async () => {
    const canvas = Object.assign(document.createElement("canvas"), { width: 8, height: 8 });
    canvas.getContext("2d");
    const silent = canvas.captureStream();
    const { stream, track, stop } = microphone();
    stop();
    for (const source of [silent, silent.getVideoTracks()[0], stream, track]) {
      const error = await errorOf(() => listen(source).next());
      assertEqual([error.code, error.hint], ["E_VALUE", "getUserMedia({ audio: true })"]);
    }
  });

  test("an element that plays is heard until it ends, and again when it plays again", async () => {
    const audio = Object.assign(new Audio("/models/whisper_tiny_en/speech.wav"), { volume: 0.5 });
    await audio.play();
    const pieces = [];
    for await (const piece of listen(audio)) pieces.push(piece);
    assert(audio.ended, "the loop ends before the sound");
    const samples = join(pieces);
    assert(Math.abs(samples.length / 16_000 - audio.duration) < 1, `${samples.length / 16_000} of ${audio.duration} s`);
    assert(samples.some((v) => Math.abs(v) > 0.05), "it is silent");
    // it may play again
    const again = listen(audio);
    const next = again.next();
    audio.currentTime = 0;
    await audio.play();
    assertEqual((await next).value.length, 1600);
    await again.return();
    const broken = await errorOf(() => listen(new Audio("/models/README.md")).next());
    assertEqual(broken.code, "E_VALUE");
  });

  test("a track that the page stops ends what listens to it", async () => {
    const { stream, track, stop } = microphone();
    const heard = (async () => {
      for await (const _ of listen(stream)) track.stop();
    })();
    await heard;
    assertEqual(track.readyState, "ended");
    stop();
  });
}
