//! Architectures of decoders: what a paper says beyond the numbers. Whether projections have biases, are stored as one, or whether
//! the output is the embedding's transpose is seen from the weights that a file has.

/// What tells one architecture from others.
#[derive(Clone, Copy, Debug)]
pub struct Arch {
    /// `general.architecture` of GGUF files.
    pub name: &'static str,
    /// `architectures` of `config.json`.
    pub classes: &'static [&'static str],
    /// The normalisation.
    pub norm: Norm,
    /// Where a block is normalised.
    pub block: Block,
    /// The feed-forward part.
    pub feed: Feed,
    /// How a token knows its place.
    pub place: Place,
    /// Queries and keys are normalised.
    pub heads: HeadNorm,
    /// Embeddings are multiplied by the square root of the width.
    pub scaled_embedding: bool,
    /// Norm weights of safetensors files are stored less one.
    pub offset_norms: bool,
    /// Which layers see the last few tokens alone, if the model has such a window: all but each n-th, all for 0.
    pub global_every: usize,
}

/// A normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// By the root of the mean square, with a weight.
    Rms,
    /// By mean and variance, with a weight, and a bias if the file has one.
    Layer,
    /// By mean and variance alone.
    Plain,
}

/// Where a block is normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// What attention and the feed-forward part read.
    Before,
    /// What they give.
    After,
    /// Both.
    Both,
    /// What they read; both read the same and are added up where the model says so.
    Parallel,
}

/// An activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// `x * sigmoid(x)`.
    Silu,
    /// The approximation of gelu by tanh.
    GeluTanh,
}

/// The feed-forward part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// `down(act(gate(x)) * up(x))`.
    Gated(Act),
    /// `down(act(up(x)))`.
    Plain(Act),
}

/// How a token knows its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Rotations of pairs in queries and keys; safetensors files pair the halves of a head.
    Rotary(Pairs),
    /// A table that is added to the embedding.
    Learned,
}

/// Which elements of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// Neighbours: GGUF files of some architectures have rows of the projections in that order.
    Neighbours,
    /// Element i and i + half.
    Halves,
}

/// Normalisation of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadNorm {
    /// None.
    None,
    /// Each head by itself.
    Each,
    /// All heads together.
    All,
}

/// Touvron et al. 2023, Grattafiori et al. 2024, Jiang et al. 2023 (Mistral, whose GGUF files are called so too), SmolLM.
const LLAMA: Arch = Arch {
    name: "llama",
    classes: &["LlamaForCausalLM", "MistralForCausalLM"],
    norm: Norm::Rms,
    block: Block::Before,
    feed: Feed::Gated(Act::Silu),
    place: Place::Rotary(Pairs::Neighbours),
    heads: HeadNorm::None,
    scaled_embedding: false,
    offset_norms: false,
    global_every: 0,
};

/// Yang et al. 2024: as Llama, with biases in the projections of attention.
const QWEN2: Arch =
    Arch { name: "qwen2", classes: &["Qwen2ForCausalLM"], place: Place::Rotary(Pairs::Halves), ..LLAMA };

/// Yang et al. 2025: without these, with each head normalised.
const QWEN3: Arch = Arch { name: "qwen3", classes: &["Qwen3ForCausalLM"], heads: HeadNorm::Each, ..QWEN2 };

/// Abdin et al. 2024: projections that are stored as one.
const PHI3: Arch = Arch { name: "phi3", classes: &["Phi3ForCausalLM"], ..QWEN2 };

/// Mesnard et al. 2024.
const GEMMA: Arch = Arch {
    name: "gemma",
    classes: &["GemmaForCausalLM"],
    feed: Feed::Gated(Act::GeluTanh),
    scaled_embedding: true,
    offset_norms: true,
    ..QWEN2
};

/// Riviere et al. 2024: normalised before and after, limited scores and logits, every second layer sees a window.
const GEMMA2: Arch =
    Arch { name: "gemma2", classes: &["Gemma2ForCausalLM"], block: Block::Both, global_every: 2, ..GEMMA };

/// Kamath et al. 2025: normalised heads instead of limits, five of six layers see a window and turn slower.
const GEMMA3: Arch =
    Arch { name: "gemma3", classes: &["Gemma3ForCausalLM"], heads: HeadNorm::Each, global_every: 6, ..GEMMA2 };

/// Groeneveld et al. 2024: normalised without weights.
const OLMO: Arch = Arch { name: "olmo", classes: &["OlmoForCausalLM"], norm: Norm::Plain, ..LLAMA };

/// Walsh et al. 2025: normalised after, and queries and keys as a whole.
const OLMO2: Arch =
    Arch { name: "olmo2", classes: &["Olmo2ForCausalLM"], block: Block::After, heads: HeadNorm::All, ..QWEN2 };

/// Bellagente et al. 2024: a part of each head is rotated.
const STABLELM: Arch =
    Arch { name: "stablelm", classes: &["StableLmForCausalLM"], norm: Norm::Layer, block: Block::Parallel, ..QWEN2 };

/// Radford et al. 2019.
const GPT2: Arch = Arch {
    name: "gpt2",
    classes: &["GPT2LMHeadModel"],
    norm: Norm::Layer,
    feed: Feed::Plain(Act::GeluTanh),
    place: Place::Learned,
    ..LLAMA
};

/// Those that can be run.
pub const ARCHES: &[Arch] = &[LLAMA, QWEN2, QWEN3, PHI3, GEMMA, GEMMA2, GEMMA3, OLMO, OLMO2, STABLELM, GPT2];
