"use client";
import { useEffect, useState } from "react";
import { Tensor, Tokenizer, init, load } from "gradloom";
import { LLM } from "gradloom/llm";
import { vad } from "gradloom/tasks";

async function run() {
  const device = await init({ device: "wasm", threads: 2 });
  const model = await load("/model.onnx", { device });
  const inputs = await (await fetch("/inputs.json")).json();
  const { output } = await model.run({
    input: new Tensor(inputs.input, [1, 576]),
    state: new Tensor(inputs.state, [2, 1, 128]),
    sr: BigInt64Array.of(16000n),
  });
  const tokens = (await Tokenizer.load("/tokenizer.json")).encode(inputs.greeting);
  const { segments } = await vad("/speech.wav", { model: "/recipe.json", device: "wasm" });
  const llm = await LLM.load("/language.gguf", { device: "wasm", context: 64 });
  const written = [];
  for await (const token of llm.tokens(inputs.prompt, { maxTokens: 8, ignoreEnd: true })) written.push(token);
  llm.dispose();
  const server = await (await fetch("/api/speech")).json();
  return { threads: device.threads, speech: await output.item(), tokens, segments, written, server };
}

export default function Speech() {
  const [text, setText] = useState("listening");
  useEffect(() => {
    run().then(
      (result) => {
        setText(`${result.speech}`);
        Object.assign(globalThis, { result });
      },
      (error) => console.error(error),
    );
  }, []);
  return <p>{text}</p>;
}
