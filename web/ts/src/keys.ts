// Random keys of layers that drop elements in training. `manualSeed` seeds them with the random numbers of the device.

/** The last key: the seed, and how many keys were drawn. A training that resumes sets both. */
export const keys = new Uint32Array(2);

/** Begins a new stream of keys; returns the seed. */
export const seedKeys = (seed: number): number => (keys.set([seed, 0]), seed);

/** A new random key. As a tensor it is an input of the graph, so that one plan serves every step. */
export const nextKey = (): Uint32Array => ((keys[1] as number) += 1, keys.slice());
