//! A generative transformer of characters, as small as one that can be trained while one waits: the decoder of Radford et al., "Language models are
//! unsupervised multitask learners" (GPT-2, 2019), which learns to go on after any place of a text. Then it writes.
//! `cargo run --release -p gradloom --example gpt -- [DEVICE] [STEPS] [TEXT_FILE]`: without a file it learns the guide of this project.

use gradloom::dtype::Scalar;
use gradloom::nn::{Embedding, LayerNorm, Linear, Module, MultiHeadAttention, Role};
use gradloom::optim::{Adam, AdamOpts, Optimizer, Schedule};
use gradloom::tensor::{Attention, Sampling};
use gradloom::{Error, Result, Runtime, Session, Tensor};
use std::path::Path;
use std::time::Instant;

/// Characters that it sees at once.
const TIME: usize = 64;
const WIDTH: usize = 96;
const HEADS: usize = 4;
const LAYERS: usize = 3;
const BATCH: usize = 16;
const RATE: f64 = 3e-3;

/// A layer: attention to what came before, then two linear layers at each place, both beside a residual.
struct Block {
    norms: [LayerNorm; 2],
    attention: MultiHeadAttention,
    linear: [Linear; 2],
}

impl Block {
    fn new(s: &Session) -> Result<Block> {
        let norm = || LayerNorm::new(s, &[WIDTH]);
        Ok(Block {
            norms: [norm()?, norm()?],
            attention: MultiHeadAttention::new(s, WIDTH, HEADS)?,
            linear: [Linear::new(s, WIDTH, 4 * WIDTH)?, Linear::new(s, 4 * WIDTH, WIDTH)?],
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let h = self.norms[0].forward(x)?;
        let x = x.add(self.attention.forward(&h, &h, &h, &Attention { causal: true, ..Attention::default() })?)?;
        let h = self.linear[0].forward(&self.norms[1].forward(&x)?)?.gelu()?;
        x.add(self.linear[1].forward(&h)?)
    }
}

struct Gpt {
    characters: Embedding,
    places: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
    output: Linear,
}

impl Module for Gpt {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        let name = |n: &str| if prefix.is_empty() { n.to_string() } else { format!("{prefix}.{n}") };
        self.characters.visit(&name("characters"), f);
        self.places.visit(&name("places"), f);
        for (i, b) in self.blocks.iter().enumerate() {
            b.norms.iter().enumerate().for_each(|(j, n)| n.visit(&name(&format!("blocks.{i}.norms.{j}")), f));
            b.attention.visit(&name(&format!("blocks.{i}.attention")), f);
            b.linear.iter().enumerate().for_each(|(j, l)| l.visit(&name(&format!("blocks.{i}.linear.{j}")), f));
        }
        self.norm.visit(&name("norm"), f);
        self.output.visit(&name("output"), f);
    }
}

impl Gpt {
    fn new(s: &Session, characters: usize) -> Result<Gpt> {
        Ok(Gpt {
            characters: Embedding::new(s, characters, WIDTH)?,
            places: Embedding::new(s, TIME, WIDTH)?,
            blocks: (0..LAYERS).map(|_| Block::new(s)).collect::<Result<_>>()?,
            norm: LayerNorm::new(s, &[WIDTH])?,
            output: Linear::new(s, WIDTH, characters)?,
        })
    }

    /// Characters `[batch, TIME]` to the logits of what follows each, `[batch, TIME, characters]`.
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let mut x = self.characters.forward(ids)?.add(&self.places.weight)?;
        for b in &self.blocks {
            x = b.forward(&x)?;
        }
        self.output.forward(&self.norm.forward(&x)?)
    }
}

/// The text to learn: a file, or all pages of the guide.
fn text(file: Option<&String>) -> Result<String> {
    let read = |p: &Path| std::fs::read_to_string(p).map_err(|e| Error::value("read", format!("{}: {e}", p.display())));
    if let Some(file) = file {
        return read(Path::new(file));
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide");
    let entries = std::fs::read_dir(&folder).map_err(|e| Error::value("read", format!("{}: {e}", folder.display())))?;
    let mut pages: Vec<_> =
        entries.filter_map(|e| Some(e.ok()?.path())).filter(|p| p.extension().is_some_and(|e| e == "md")).collect();
    pages.sort();
    Ok(pages.iter().map(|p| read(p)).collect::<Result<Vec<_>>>()?.join("\n"))
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let steps: usize = args.get(1).and_then(|a| a.parse().ok()).unwrap_or(600);
    let text: Vec<char> = text(args.get(2))?.chars().collect();
    let mut known: Vec<char> = text.clone();
    known.sort_unstable();
    known.dedup();
    let ids: Vec<i32> = text.iter().map(|c| known.binary_search(c).unwrap_or(0) as i32).collect();
    // the last tenth is for the test
    let cut = ids.len() / 10 * 9;
    let (train, test) = ids.split_at(cut);
    if test.len() <= TIME + 1 {
        return Err(Error::value("text", format!("{} characters are too few", text.len())));
    }
    let mut rt = Runtime::open(args.first().map_or("auto", String::as_str), 0)?;
    let s = rt.session().clone();
    s.manual_seed(1);
    let net = Gpt::new(&s, known.len())?;
    let size: usize = net.parameters().iter().map(Tensor::numel).sum();
    println!("{} characters, {} different ones; {size} parameters", ids.len(), known.len());
    // pieces of a text, and the same pieces a character later
    let pieces = |from: &[i32], starts: &[usize]| -> Result<(Tensor, Tensor)> {
        let take = |by: usize| starts.iter().flat_map(|&p| &from[p + by..][..TIME]).copied().collect::<Vec<i32>>();
        let shape = [starts.len(), TIME];
        Ok((Tensor::new(&s, &take(0), &shape)?, Tensor::new(&s, &take(1), &shape)?))
    };
    let loss = |(x, y): (Tensor, Tensor)| net.forward(&x)?.flatten(0, 1)?.cross_entropy(&y.flatten(0, 1)?, None, 0.0);
    // the rate is a scalar of the launch: all steps are one plan
    let (rate, cosine) = (Tensor::variable_f32(&s, "rate"), Schedule::Cosine { steps, floor: 0.0 });
    let mut adam = Adam::new(net.parameters(), &rate, AdamOpts::default())?;
    rt.realize(&adam.tensors().iter().collect::<Vec<_>>())?;
    let (mut random, begin) = (1u64, Instant::now());
    for step in 1..=steps {
        let starts: [usize; BATCH] = std::array::from_fn(|_| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) as usize % (train.len() - TIME)
        });
        let wrong = loss(pieces(train, &starts)?)?;
        adam.minimize(&wrong)?;
        rt.engine().set_var("rate", Scalar::float(RATE * cosine.at(step - 1)));
        let mut all = adam.tensors();
        all.push(wrong.clone());
        rt.realize(&all.iter().collect::<Vec<_>>())?;
        if step % 100 == 0 || step == 1 {
            let wrong = rt.to_vec::<f32>(&wrong)?[0];
            println!("step {step:5}: {wrong:.3} nats a character, {:.1} s", begin.elapsed().as_secs_f64());
        }
    }
    let spread: [usize; BATCH] = std::array::from_fn(|i| i * (test.len() - TIME - 1) / BATCH);
    let wrong = loss(pieces(test, &spread)?)?;
    let wrong = f64::from(rt.to_vec::<f32>(&wrong)?[0]);
    // without looking at what came before: the entropy of single characters
    let mut count = vec![0.0f64; known.len()];
    train.iter().for_each(|&c| count[c as usize] += 1.0);
    let entropy: f64 =
        count.iter().filter(|&&n| n > 0.0).map(|n| -n / train.len() as f64 * (n / train.len() as f64).ln()).sum();
    println!("text it has not seen: {wrong:.3} nats a character, {entropy:.3} without looking at what came before");
    let mut written = train[..TIME].to_vec();
    let how = Sampling { temperature: 0.7, ..Sampling::default() };
    for step in 0..300u32 {
        let seen = Tensor::new(&s, &written[written.len() - TIME..], &[1, TIME])?;
        let key = Tensor::new(&s, &[1, step], &[2])?;
        let next = net.forward(&seen)?.narrow(1, TIME - 1, 1)?.flatten(0, 1)?.sample(&how, None, Some(&key))?;
        written.push(rt.to_vec::<i32>(&next)?[0]);
    }
    println!("{}", written.iter().map(|&c| known[c as usize]).collect::<String>());
    if wrong > 0.8 * entropy {
        eprintln!("that is not learned: four fifths of {entropy:.3} were expected");
        std::process::exit(1);
    }
    Ok(())
}
