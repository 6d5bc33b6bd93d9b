// Semantic search: passages are embedded once; a query finds those with the most similar vectors.
import { embed, similar } from "gradloom/tasks";

/** Joins the sentences of each paragraph to passages of about this many letters. */
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
  texts = [];
  from = []; // where each text is from
  vectors = [];

  constructor(options = {}) {
    this.options = { model: "models/minilm_l6_v2/recipe.json", ...options };
  }

  async add(texts, from, options = {}) {
    this.vectors.push(...(await embed(texts, { ...this.options, ...options })));
    this.texts.push(...texts);
    this.from.push(...texts.map(() => from));
  }

  /** The most similar passages, best first; a score of 1 means identical. */
  async find(query, count = 6, options = {}) {
    const near = await similar(query, this.texts, { ...this.options, ...options, vectors: this.vectors });
    return near.slice(0, count).map(({ index, text, score }) => ({ text, from: this.from[index], score }));
  }
}
