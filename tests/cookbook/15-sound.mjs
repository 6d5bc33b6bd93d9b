// Hear as Whisper does. A second of a tone as mel bands.
import { init } from "gradloom";
import { logMel, readAudio } from "gradloom/audio";

await init();
const tone = Float32Array.from({ length: 44_100 }, (_, i) => Math.sin((2 * Math.PI * 440 * i) / 44_100));
const { channels } = await readAudio({ channels: [tone], sampleRate: 44_100 }, { sampleRate: 16_000 });
console.log(channels[0].length, logMel(channels[0]).shape.join(" "));
//> 16000 80 100
