// Search by meaning: passages become vectors once, and a query finds those that point its way.
import { embed } from "gradloom/tasks";

/** Sentences of each paragraph, put together until they are so many letters. Markdown and web addresses stay as they are. */
export function passages(text, letters = 360) {
  const out = [];
  for (const paragraph of text.split(/\n\s*\n/)) {
    let passage = "";
    for (const sentence of paragraph.replace(/\s+/g, " ").trim().match(/\S.*?(?:[.!?](?= )|$)/g) ?? []) {
      if (passage && passage.length + sentence.length > letters) out.push(passage), (passage = "");
      passage += passage ? ` ${sentence}` : sentence;
    }
    if (/\p{L}/u.test(passage)) out.push(passage);
  }
  return out;
}

export class Index {
  constructor(options = {}) {
    this.options = { model: "models/minilm_l6_v2/recipe.json", ...options };
    this.entries = []; // { text, from, vector }
  }

  async add(texts, from, options = {}) {
    const vectors = await embed(texts, { ...this.options, ...options });
    this.entries.push(...texts.map((text, i) => ({ text, from, vector: vectors[i] })));
  }

  /** The nearest passages, best first: 1 would be the same words. */
  async find(query, count = 6, options = {}) {
    const [asked] = await embed([query], { ...this.options, ...options });
    const score = ({ vector }) => vector.reduce((sum, v, i) => sum + v * asked[i], 0);
    const scored = this.entries.map((entry) => ({ text: entry.text, from: entry.from, score: score(entry) }));
    return scored.sort((a, b) => b.score - a.score).slice(0, count);
  }
}
