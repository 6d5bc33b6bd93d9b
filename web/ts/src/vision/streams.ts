// The newest picture of a camera, a screen or a canvas that is captured: a video element, not shown, plays the track.
import { UnsupportedError, ValueError, guardAsync } from "../errors.js";

/** A track without a frame within this time counts as one that gives none. */
const FIRST_FRAME_MS = 10_000;
/** An element that nobody asks for within this time is released, since it decodes every frame. */
const IDLE_MS = 5_000;

interface Player {
  /** The element, once it has a frame. */
  video: Promise<HTMLVideoElement>;
  /** Keeps the element for another while. */
  use(): void;
}

const players = new WeakMap<MediaStreamTrack, Player>();

const endedError = (): ValueError => new ValueError("E_VALUE", "the track has ended", { hint: "ask for the camera or the screen again" });

/** The track that a source stands for. */
function trackOf(source: MediaStream | MediaStreamTrack): MediaStreamTrack {
  const tracks = "getVideoTracks" in source ? source.getVideoTracks() : [source];
  const track = tracks.find(({ kind, readyState }) => kind === "video" && readyState === "live");
  if (track) return track;
  if (tracks.some(({ kind }) => kind === "video")) throw endedError();
  throw new ValueError("E_VALUE", "the stream has no pictures: it has no video track", { hint: "getUserMedia({ video: true })" });
}

function play(track: MediaStreamTrack): Player {
  const video: HTMLVideoElement = Object.assign(document.createElement("video"), { muted: true, playsInline: true, srcObject: new MediaStream([track]) });
  let timer: ReturnType<typeof setTimeout> | undefined;
  const release = (): void => {
    clearTimeout(timer);
    if (players.get(track) === player) players.delete(track);
    video.srcObject = null;
  };
  const use = (): void => {
    clearTimeout(timer);
    timer = setTimeout(release, IDLE_MS);
  };
  const hasFrame = new Promise<HTMLVideoElement>((done, fail) => {
    const late = setTimeout(() => fail(new ValueError("E_VALUE", `no frame came within ${FIRST_FRAME_MS / 1000} seconds`)), FIRST_FRAME_MS);
    const settle = (end: () => void) => (): void => {
      clearTimeout(late);
      end();
    };
    video.addEventListener("loadeddata", settle(() => done(video)), { once: true });
    track.addEventListener("ended", settle(() => fail(endedError())), { once: true });
    video.play().catch((cause: Error) => settle(() => fail(new ValueError("E_VALUE", `the track cannot be played: ${cause.message}`, { cause })))());
  });
  hasFrame.then(use, release);
  video.addEventListener("ended", release, { once: true });
  const player: Player = { video: hasFrame, use };
  return player;
}

/** An element whose current frame is the newest one of a stream or track. Waits for the first frame. */
export async function playerOf(source: MediaStream | MediaStreamTrack, signal?: AbortSignal): Promise<HTMLVideoElement> {
  if (typeof document === "undefined") {
    const hint = "take frames from a MediaStreamTrackProcessor: a VideoFrame is a picture";
    throw new UnsupportedError("E_UNSUPPORTED", "only a page gives the frames of a stream or track", { hint });
  }
  const track = trackOf(source);
  let player = players.get(track);
  if (!player) players.set(track, (player = play(track)));
  const { video, use } = player;
  const element = await guardAsync(() => video, signal);
  if (track.readyState !== "live") throw endedError();
  use();
  return element;
}
