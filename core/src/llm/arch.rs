//! Architectures of decoders: the structure that a model's paper describes, beyond its hyperparameters. Whether
//! projections have biases or are stored as one matrix, and whether the output matrix is the embedding's transpose, is
//! not described here: it is seen from the weights that a file has. Weights that no description asks for are refused
//! (`names::unread`).

/// What distinguishes one architecture from others.
#[derive(Clone, Copy, Debug)]
pub struct Arch {
    /// The value of `general.architecture` in GGUF files.
    pub name: &'static str,
    /// The values of `architectures` in `config.json`.
    pub classes: &'static [&'static str],
    /// The kind of normalisation.
    pub norm: Norm,
    /// What is normalised in a block.
    pub block: Block,
    /// The kind of feed-forward network.
    pub feed: Feed,
    /// How positions are encoded.
    pub positions: PositionEncoding,
    /// How queries and keys are normalised.
    pub heads: HeadNorm,
    /// Whether embeddings are multiplied by the square root of the model's width.
    pub scaled_embedding: bool,
    /// Whether safetensors files store norm weights minus one.
    pub offset_norms: bool,
    /// Which layers have global attention in a model with an attention window: every n-th one, the others see the
    /// window only. With 0 all layers have the window. `None` where only files say which layers have one.
    pub global_every: Option<usize>,
    /// Whether tokens attend to none that come later.
    pub causal: bool,
    /// Whether layers have a state in place of attention and of a feed-forward network (`mamba.rs`).
    pub recurrent: bool,
    /// Whether feed-forward networks may be mixtures of experts.
    pub experts: bool,
    /// The key of `config.json` that names the activation.
    pub act_key: &'static str,
    /// What is added to the variance or mean square if a `config.json` does not say.
    pub eps: f64,
}

impl Arch {
    /// Whether layers with a window have rotations of their own.
    pub(super) fn has_local_rotations(&self) -> bool {
        self.global_every == Some(6)
    }
}

/// A kind of normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// Divided by the root of the mean square, with a weight (RMSNorm).
    Rms,
    /// By mean and variance, with a weight, and a bias if the file has one (LayerNorm).
    Layer,
    /// By mean and variance, without weight and bias.
    Plain,
}

/// What is normalised in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// The inputs of attention and of the feed-forward network.
    Before,
    /// Their outputs.
    After,
    /// The sums of their inputs and outputs (encoders).
    Sum,
    /// Their inputs and their outputs.
    Both,
    /// Their inputs. Where the configuration says so, both read the same normalised input and both results are added to
    /// it (`parallel`).
    Parallel,
}

/// An activation function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// `x * sigmoid(x)`.
    Silu,
    /// The tanh approximation of GELU.
    GeluTanh,
    /// GELU, `x/2 * (1 + erf(x / sqrt 2))`.
    Gelu,
    /// `max(x, 0)`.
    Relu,
}

impl Act {
    /// The activation that the transformers library calls so, if it is one of these.
    pub(super) fn named(name: &str) -> Option<Act> {
        Some(match name {
            "silu" | "swish" => Act::Silu,
            // The last two differ from the others in the tenth digit of a constant, or in the order of operations
            "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" | "gelu_accurate" => Act::GeluTanh,
            "gelu" | "gelu_python" => Act::Gelu,
            "relu" => Act::Relu,
            _ => return None,
        })
    }
}

/// A kind of feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// `down(act(gate(x)) * up(x))`.
    Gated(Act),
    /// `down(act(up(x)))`.
    Plain(Act),
}

impl Feed {
    /// The activation where a file names none.
    pub(super) fn act(self) -> Act {
        match self {
            Feed::Gated(act) | Feed::Plain(act) => act,
        }
    }
}

/// How positions are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PositionEncoding {
    /// Rotary embedding: pairs of elements of queries and keys are rotated. Safetensors files always pair
    /// the halves of a head.
    Rotary(RotaryPairs),
    /// A learned table of vectors that are added to the embedding.
    Learned,
    /// They are not.
    None,
}

/// Which elements of a head are rotated as a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotaryPairs {
    /// Elements 2i and 2i + 1: GGUF files of some architectures have the rows of the projections in that order.
    Interleaved,
    /// Elements i and i + half of the rotated width.
    Halves,
}

/// How queries and keys are normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadNorm {
    /// They are not.
    None,
    /// Each head by itself.
    Each,
    /// All heads together, as one vector.
    All,
    /// Each head by itself and with weights of its own, where a layer has these weights.
    Own,
}

/// Touvron et al. 2023, Grattafiori et al. 2024, Jiang et al. 2023 (Mistral, whose GGUF files name the
/// architecture `llama`), SmolLM.
pub(super) const LLAMA: Arch = Arch {
    name: "llama",
    classes: &["LlamaForCausalLM", "MistralForCausalLM"],
    norm: Norm::Rms,
    block: Block::Before,
    feed: Feed::Gated(Act::Silu),
    positions: PositionEncoding::Rotary(RotaryPairs::Interleaved),
    heads: HeadNorm::None,
    scaled_embedding: false,
    offset_norms: false,
    global_every: Some(0),
    causal: true,
    recurrent: false,
    experts: false,
    act_key: "hidden_act",
    eps: 1e-6,
};

/// Jiang et al. 2024. GGUF files name the architecture `llama`.
const MIXTRAL: Arch = Arch { name: "mixtral", classes: &["MixtralForCausalLM"], experts: true, eps: 1e-5, ..LLAMA };

/// Bakouch et al. 2025: as Llama, without rotations in every fourth layer.
const SMOLLM3: Arch = Arch { name: "smollm3", classes: &["SmolLM3ForCausalLM"], global_every: None, ..LLAMA };

/// Yang et al. 2024: as Llama, with biases in the projections of attention.
const QWEN2: Arch = Arch {
    name: "qwen2",
    classes: &["Qwen2ForCausalLM"],
    positions: PositionEncoding::Rotary(RotaryPairs::Halves),
    global_every: None,
    ..LLAMA
};

/// Yang et al. 2025: as Qwen2 without biases, with each head of queries and keys normalised.
const QWEN3: Arch = Arch { name: "qwen3", classes: &["Qwen3ForCausalLM"], heads: HeadNorm::Each, ..QWEN2 };

/// Team Qwen 2024: beside the experts that a token chooses there is one for all tokens.
const QWEN2_MOE: Arch = Arch { name: "qwen2moe", classes: &["Qwen2MoeForCausalLM"], experts: true, ..QWEN2 };

/// Yang et al. 2025.
const QWEN3_MOE: Arch = Arch { name: "qwen3moe", classes: &["Qwen3MoeForCausalLM"], experts: true, ..QWEN3 };

/// Abdin et al. 2024: query, key and value projections are stored as one matrix.
const PHI3: Arch = Arch { name: "phi3", classes: &["Phi3ForCausalLM"], global_every: Some(0), eps: 1e-5, ..QWEN2 };

/// Mesnard et al. 2024.
const GEMMA: Arch = Arch {
    name: "gemma",
    classes: &["GemmaForCausalLM"],
    feed: Feed::Gated(Act::GeluTanh),
    scaled_embedding: true,
    offset_norms: true,
    act_key: "hidden_activation",
    ..QWEN2
};

/// Riviere et al. 2024: inputs and outputs are normalised, scores and logits are soft-capped, every second
/// layer has a window.
const GEMMA2: Arch =
    Arch { name: "gemma2", classes: &["Gemma2ForCausalLM"], block: Block::Both, global_every: Some(2), ..GEMMA };

/// Kamath et al. 2025: normalised heads instead of soft caps; five of six layers have a window, and a base
/// of rotations of their own.
const GEMMA3: Arch = Arch {
    name: "gemma3",
    classes: &["Gemma3ForCausalLM", IMAGES],
    heads: HeadNorm::Each,
    global_every: Some(6),
    ..GEMMA2
};

/// The class of Gemma 3 that also reads images. Of its files the language model is used.
pub(super) const IMAGES: &str = "Gemma3ForConditionalGeneration";

/// Groeneveld et al. 2024: normalisation without weights.
const OLMO: Arch =
    Arch { name: "olmo", classes: &["OlmoForCausalLM"], norm: Norm::Plain, global_every: None, eps: 1e-5, ..LLAMA };

/// Walsh et al. 2025: outputs are normalised, and queries and keys over all heads.
const OLMO2: Arch = Arch {
    name: "olmo2",
    classes: &["Olmo2ForCausalLM"],
    block: Block::After,
    heads: HeadNorm::All,
    eps: 1e-5,
    ..QWEN2
};

/// Muennighoff et al. 2024.
const OLMOE: Arch =
    Arch { name: "olmoe", classes: &["OlmoeForCausalLM"], heads: HeadNorm::All, experts: true, eps: 1e-5, ..QWEN2 };

/// Bellagente et al. 2024: only a part of each head is rotated.
const STABLELM: Arch = Arch {
    name: "stablelm",
    classes: &["StableLmForCausalLM"],
    norm: Norm::Layer,
    block: Block::Parallel,
    heads: HeadNorm::Own,
    eps: 1e-5,
    ..QWEN2
};

/// Radford et al. 2019.
const GPT2: Arch = Arch {
    name: "gpt2",
    classes: &["GPT2LMHeadModel"],
    norm: Norm::Layer,
    feed: Feed::Plain(Act::GeluTanh),
    positions: PositionEncoding::Learned,
    global_every: None,
    act_key: "activation_function",
    eps: 1e-5,
    ..LLAMA
};

/// Gu and Dao 2023.
const MAMBA: Arch = Arch {
    name: "mamba",
    classes: &["MambaForCausalLM"],
    positions: PositionEncoding::None,
    recurrent: true,
    eps: 1e-5,
    ..LLAMA
};

/// All supported architectures.
pub const ARCHES: &[Arch] = &[
    LLAMA, MIXTRAL, SMOLLM3, QWEN2, QWEN3, QWEN2_MOE, QWEN3_MOE, PHI3, GEMMA, GEMMA2, GEMMA3, OLMO, OLMO2, OLMOE,
    STABLELM, GPT2, MAMBA,
];
