//! RNN, LSTM and GRU as recurrences of one step, and their single-step cells. The input's contribution to all gates is one
//! matrix product over the whole sequence; each step adds the contribution of the state. Weights are named and laid out
//! as in torch (gates in the order i f g o, and r z n).

use super::{Mode, Module, Role, bias_init, each};
use crate::tensor::{Session, Tensor};
use crate::{DType, Error, Result};

/// Options of a recurrent module; by default one layer, one direction, biases, no dropout, batch first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecurrentOpts {
    /// Number of layers; each takes the outputs of the one before.
    pub layers: usize,
    /// Whether each layer runs in both directions; the outputs of both are concatenated.
    pub bidirectional: bool,
    /// Whether the gates have biases.
    pub bias: bool,
    /// Probability of dropping an output between two layers, in training.
    pub dropout: f64,
    /// Whether sequences are `[batch, time, ..]` rather than `[time, batch, ..]`.
    pub batch_first: bool,
    /// Width that an LSTM projects its hidden state to (torch's `proj_size`); 0 for no projection.
    pub projection: usize,
}

impl Default for RecurrentOpts {
    fn default() -> RecurrentOpts {
        RecurrentOpts { layers: 1, bidirectional: false, bias: true, dropout: 0.0, batch_first: true, projection: 0 }
    }
}

/// Are layers recurrences of one step, rather than a step for each element of the sequence? In a page they are not: the
/// code would be in the module that every page downloads, since several of its parts use this file.
const RECURRENCES: bool = cfg!(not(target_arch = "wasm32"));

/// The weights of one layer in one direction.
struct Cell {
    /// The suffix of the tensors' names: `_l0`, `_l1_reverse` ...; empty for the cells.
    suffix: String,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Option<Tensor>,
    bias_hh: Option<Tensor>,
    /// The projection of an LSTM's hidden state.
    weight_hr: Option<Tensor>,
}

impl Cell {
    fn new(s: &Session, suffix: String, rows: usize, input: usize, hidden: usize, o: &RecurrentOpts) -> Result<Cell> {
        let init = |shape: &[usize]| bias_init(s, hidden, shape);
        let weight_ih = init(&[rows, input])?;
        let weight_hh = init(&[rows, if o.projection > 0 { o.projection } else { hidden }])?;
        let (bias_ih, bias_hh) = if o.bias { (Some(init(&[rows])?), Some(init(&[rows])?)) } else { (None, None) };
        let weight_hr = if o.projection > 0 { Some(init(&[o.projection, hidden])?) } else { None };
        Ok(Cell { suffix, weight_ih, weight_hh, bias_ih, bias_hh, weight_hr })
    }

    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        let tensors = [
            ("weight_ih", Some(&self.weight_ih)),
            ("weight_hh", Some(&self.weight_hh)),
            ("bias_ih", self.bias_ih.as_ref()),
            ("bias_hh", self.bias_hh.as_ref()),
            ("weight_hr", self.weight_hr.as_ref()),
        ];
        for (name, t) in tensors {
            each(prefix, Role::Parameter, f, &[(&format!("{name}{}", self.suffix), t)]);
        }
    }

    /// The input's contribution to the gates (before the nonlinearity).
    fn input(&self, x: &Tensor) -> Result<Tensor> {
        x.linear(&self.weight_ih, self.bias_ih.as_ref())
    }

    /// The state's contribution to the gates (before the nonlinearity).
    fn state(&self, h: &Tensor) -> Result<Tensor> {
        h.linear(&self.weight_hh, self.bias_hh.as_ref())
    }
}

/// A step: the next state from the cell, the input's contribution to the gates, and the state. The first tensor of a
/// state is the output.
type Step = fn(&Cell, &Tensor, &[Tensor]) -> Result<Vec<Tensor>>;

fn rnn_tanh(cell: &Cell, gates: &Tensor, state: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![gates.add(cell.state(&state[0])?)?.tanh()?.contiguous()])
}

fn rnn_relu(cell: &Cell, gates: &Tensor, state: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![gates.add(cell.state(&state[0])?)?.relu()?.contiguous()])
}

fn lstm(cell: &Cell, gates: &Tensor, state: &[Tensor]) -> Result<Vec<Tensor>> {
    let parts = gates.add(cell.state(&state[0])?)?.chunk(4, -1)?;
    let (i, f, g, o) = (parts[0].sigmoid()?, parts[1].sigmoid()?, parts[2].tanh()?, parts[3].sigmoid()?);
    let c = f.mul(&state[1])?.add(i.mul(g)?)?.contiguous();
    let h = o.mul(c.tanh()?)?;
    let h = match &cell.weight_hr {
        Some(w) => h.linear(w, None)?,
        None => h,
    };
    Ok(vec![h.contiguous(), c])
}

fn gru(cell: &Cell, gates: &Tensor, state: &[Tensor]) -> Result<Vec<Tensor>> {
    let h = &state[0];
    let own = cell.state(h)?.chunk(3, -1)?;
    let input = gates.chunk(3, -1)?;
    let (r, z) = (input[0].add(&own[0])?.sigmoid()?, input[1].add(&own[1])?.sigmoid()?);
    let n = input[2].add(r.mul(&own[2])?)?.tanh()?;
    Ok(vec![n.add(z.mul(h.sub(&n)?)?)?.contiguous()])
}

/// A stack of layers with one or two directions each, which all recurrent modules share.
struct Stack {
    cells: Vec<Cell>,
    hidden: usize,
    opts: RecurrentOpts,
}

impl Stack {
    fn new(session: &Session, gates: usize, input: usize, hidden: usize, opts: RecurrentOpts) -> Result<Stack> {
        let projects = opts.projection == 0 || gates == 4 && opts.projection < hidden;
        if hidden == 0 || opts.layers == 0 || !(0.0..1.0).contains(&opts.dropout) || !projects {
            let what = format!(
                "{} layers of {hidden}, dropout {}, projection to {} (an LSTM's, to less)",
                opts.layers, opts.dropout, opts.projection
            );
            return Err(Error::value("recurrent", what));
        }
        let directions = 1 + usize::from(opts.bidirectional);
        let mut cells = Vec::new();
        for layer in 0..crate::tensor::check_repetitions("recurrent", opts.layers)? {
            let out = if opts.projection > 0 { opts.projection } else { hidden };
            let width = if layer == 0 { input } else { out * directions };
            for direction in 0..directions {
                let suffix = format!("_l{layer}{}", if direction == 1 { "_reverse" } else { "" });
                cells.push(Cell::new(session, suffix, gates * hidden, width, hidden, &opts)?);
            }
        }
        Ok(Stack { cells, hidden, opts })
    }

    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        self.cells.iter().for_each(|c| c.visit(prefix, f));
    }

    /// Runs every layer over a sequence. `states` has the initial state of each kind (hidden, and cell for an LSTM)
    /// `[layers * directions, batch, width]`; `None` is zeros. Returns the outputs and the final states.
    fn run(
        &self,
        op: &'static str,
        x: &Tensor,
        states: &[Option<&Tensor>],
        mode: Mode,
        step: Step,
    ) -> Result<(Tensor, Vec<Tensor>)> {
        x.want_rank(op, 3)?;
        let mut sequence = if self.opts.batch_first { x.clone() } else { x.transpose(0, 1)? };
        let (batch, time) = (sequence.dim(0)?, sequence.dim(1)?);
        // the first kind of state is the output, which a projection may have narrowed
        let out = self.cells[0].weight_hh.dim(1)?;
        let width = |kind: usize| if kind == 0 { out } else { self.hidden };
        let kinds = states.iter().enumerate().map(|(i, s)| self.split_state(&sequence, *s, width(i)));
        let kinds = kinds.collect::<Result<Vec<_>>>()?;
        let mut last: Vec<Vec<Tensor>> = Vec::new();
        for (layer, cells) in self.cells.chunks(1 + usize::from(self.opts.bidirectional)).enumerate() {
            if layer > 0 && mode == Mode::Train {
                sequence = sequence.dropout(self.opts.dropout)?;
            }
            let mut sides = Vec::new();
            for (direction, cell) in cells.iter().enumerate() {
                let gates = cell.input(&sequence)?;
                let mut state: Vec<Tensor> = kinds.iter().map(|k| k[last.len()].clone()).collect();
                crate::tensor::check_repetitions("recurrent", time)?;
                // the states of a projection have several widths, and so they cannot be one tensor
                if RECURRENCES && self.opts.projection == 0 && time * batch > 0 {
                    let turned = |x: Tensor| if direction == 1 { x.flip(&[0]) } else { Ok(x) };
                    let gates = turned(gates.transpose(0, 1)?)?;
                    // a recurrence's states keep their dtype, which is that of a step's results
                    let own = gates.dtype().promote(cell.weight_hh.dtype());
                    let dtype = state.iter().fold(own, |d, s| d.promote(s.dtype()));
                    for s in &mut state {
                        *s = s.cast(dtype)?;
                    }
                    let initial: Vec<&Tensor> = state.iter().collect();
                    let all = Tensor::recurrence(&initial, &[&gates], |state, x| step(cell, &x[0], state))?;
                    sides.push(turned(all[0].after.clone())?.transpose(0, 1)?);
                    last.push(all.into_iter().map(|s| s.last).collect());
                    continue;
                }
                let mut outputs = Vec::with_capacity(time);
                for i in 0..time {
                    let t = if direction == 1 { time - 1 - i } else { i };
                    state = step(cell, &gates.select_at(1, t as i64)?, &state)?;
                    outputs.push(state[0].clone());
                }
                if direction == 1 {
                    outputs.reverse();
                }
                sides.push(match outputs.is_empty() {
                    true => Tensor::zeros(x.session(), x.dtype(), &[batch, 0, out])?,
                    false => Tensor::stack(&outputs.iter().collect::<Vec<_>>(), 1)?,
                });
                last.push(state);
            }
            sequence = Tensor::cat(&sides.iter().collect::<Vec<_>>(), 2)?;
        }
        let y = if self.opts.batch_first { sequence } else { sequence.transpose(0, 1)? };
        let stacked = |i: usize| Tensor::stack(&last.iter().map(|s| &s[i]).collect::<Vec<_>>(), 0);
        Ok((y, (0..states.len()).map(stacked).collect::<Result<_>>()?))
    }

    /// Splits a state `[layers * directions, batch, width]` into one for each cell; zeros if there is none.
    /// `Error::Shape` for another shape.
    fn split_state(&self, x: &Tensor, state: Option<&Tensor>, width: usize) -> Result<Vec<Tensor>> {
        let batch = x.dim(0)?;
        let Some(state) = state else {
            let zero = Tensor::zeros(x.session(), float_of(x), &[batch, width])?;
            return Ok(vec![zero; self.cells.len()]);
        };
        let wanted = [self.cells.len(), batch, width];
        if state.shape() != wanted {
            return Err(Error::Shape { op: "recurrent", lhs: state.shape(), rhs: wanted.to_vec() });
        }
        (0..self.cells.len()).map(|i| state.select_at(0, i as i64)).collect()
    }
}

/// The kind of a recurrent network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recurrent {
    /// [`Rnn`] with this nonlinearity.
    Rnn(Nonlinearity),
    /// [`Lstm`]: its state is two tensors.
    Lstm,
    /// [`Gru`].
    Gru,
}

/// Runs a recurrent network with given weights, for callers that hold these themselves. For each layer and direction
/// they are `weight_ih` and `weight_hh`, with `opts.bias` also `bias_ih` and `bias_hh`, and with a projection
/// `weight_hr`. The state is one tensor (for an LSTM two) of shape `[layers * directions, batch, hidden]`, or zeros if
/// `None`. Returns the outputs and the final state.
///
/// # Errors
/// `E_VALUE` for another number of weights or states, `E_SHAPE` for weights or states that do not fit.
pub fn recurrent(
    kind: Recurrent,
    x: &Tensor,
    state: Option<&[Tensor]>,
    weights: &[Tensor],
    opts: RecurrentOpts,
    mode: Mode,
) -> Result<(Tensor, Vec<Tensor>)> {
    let (step, kinds): (Step, usize) = match kind {
        Recurrent::Rnn(n) => (n.step(), 1),
        Recurrent::Lstm => (lstm, 2),
        Recurrent::Gru => (gru, 1),
    };
    let (plain, directions) = (if opts.bias { 4 } else { 2 }, 1 + usize::from(opts.bidirectional));
    let each = plain + usize::from(opts.projection > 0);
    // a projection is [outputs, hidden]
    let hidden = weights.get(if opts.projection > 0 { plain } else { 1 }).map_or(Ok(0), |w| w.dim(-1))?;
    let fits = (opts.projection == 0 || kind == Recurrent::Lstm)
        && opts.layers > 0
        && hidden > 0
        && weights.len() == each * opts.layers * directions;
    if !fits || state.is_some_and(|s| s.len() != kinds) {
        let what = format!("{} weights for {} layers in {directions} directions", weights.len(), opts.layers);
        return Err(Error::value("recurrent", what));
    }
    let cell = |w: &[Tensor]| Cell {
        suffix: String::new(),
        weight_ih: w[0].clone(),
        weight_hh: w[1].clone(),
        bias_ih: w[..plain].get(2).cloned(),
        bias_hh: w[..plain].get(3).cloned(),
        weight_hr: w.get(plain).cloned(),
    };
    let stack = Stack { cells: weights.chunks(each).map(cell).collect(), hidden, opts };
    let states: Vec<Option<&Tensor>> = (0..kinds).map(|i| state.map(|s| &s[i])).collect();
    stack.run("recurrent", x, &states, mode, step)
}

/// The state of an LSTM between calls; each tensor is `[layers * directions, batch, hidden]`.
#[derive(Clone, Debug)]
pub struct LstmState {
    /// Hidden state; it has the projection's width if there is one.
    pub h: Tensor,
    /// Cell state.
    pub c: Tensor,
}

/// A long short-term memory network.
pub struct Lstm {
    stack: Stack,
}

impl Lstm {
    /// `layers` layers in one direction.
    pub fn new(session: &Session, input: usize, hidden: usize, layers: usize) -> Result<Lstm> {
        Lstm::with(session, input, hidden, RecurrentOpts { layers, ..RecurrentOpts::default() })
    }

    /// `layers` layers in both directions; the outputs of both are concatenated.
    pub fn bidirectional(session: &Session, input: usize, hidden: usize, layers: usize) -> Result<Lstm> {
        let opts = RecurrentOpts { layers, bidirectional: true, ..RecurrentOpts::default() };
        Lstm::with(session, input, hidden, opts)
    }

    /// An LSTM with these options.
    pub fn with(session: &Session, input: usize, hidden: usize, opts: RecurrentOpts) -> Result<Lstm> {
        Ok(Lstm { stack: Stack::new(session, 4, input, hidden, opts)? })
    }

    /// `[batch, time, in] -> [batch, time, hidden * directions]` and the final state, starting from `state` or zeros;
    /// as in inference.
    pub fn forward(&self, x: &Tensor, state: Option<&LstmState>) -> Result<(Tensor, LstmState)> {
        self.forward_in(x, state, Mode::Eval)
    }

    /// [`Lstm::forward`] in training (with dropout between layers) or inference.
    pub fn forward_in(&self, x: &Tensor, state: Option<&LstmState>, mode: Mode) -> Result<(Tensor, LstmState)> {
        let (y, mut last) = self.stack.run("lstm", x, &[state.map(|s| &s.h), state.map(|s| &s.c)], mode, lstm)?;
        let (Some(c), Some(h)) = (last.pop(), last.pop()) else {
            return Err(Error::Internal("an LSTM without a state".into()));
        };
        Ok((y, LstmState { h, c }))
    }
}

impl Module for Lstm {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        self.stack.visit(prefix, f);
    }
}

/// The nonlinearity that an RNN applies to the sum of the contributions of input and state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nonlinearity {
    /// tanh.
    #[default]
    Tanh,
    /// max(0, x).
    Relu,
}

impl Nonlinearity {
    fn step(self) -> Step {
        match self {
            Nonlinearity::Tanh => rnn_tanh,
            Nonlinearity::Relu => rnn_relu,
        }
    }
}

/// Elman network: `h' = tanh(W x + U h)`, or relu.
pub struct Rnn {
    stack: Stack,
    /// tanh or relu.
    pub nonlinearity: Nonlinearity,
}

/// Gated recurrent unit. The reset gate is applied after the product with the weights, as in torch and cuDNN.
pub struct Gru {
    stack: Stack,
}

impl Gru {
    /// `layers` layers in one direction.
    pub fn new(session: &Session, input: usize, hidden: usize, layers: usize) -> Result<Gru> {
        Gru::with(session, input, hidden, RecurrentOpts { layers, ..RecurrentOpts::default() })
    }

    /// `layers` layers in both directions; the outputs of both are concatenated.
    pub fn bidirectional(session: &Session, input: usize, hidden: usize, layers: usize) -> Result<Gru> {
        Gru::with(session, input, hidden, RecurrentOpts { layers, bidirectional: true, ..RecurrentOpts::default() })
    }

    /// A GRU with these options.
    pub fn with(session: &Session, input: usize, hidden: usize, opts: RecurrentOpts) -> Result<Gru> {
        Ok(Gru { stack: Stack::new(session, 3, input, hidden, opts)? })
    }

    fn step(&self) -> Step {
        gru
    }
}

impl Rnn {
    /// A network with tanh and these options.
    pub fn with(session: &Session, input: usize, hidden: usize, opts: RecurrentOpts) -> Result<Rnn> {
        let stack = Stack::new(session, 1, input, hidden, opts)?;
        Ok(Rnn { stack, nonlinearity: Nonlinearity::Tanh })
    }

    /// This network with relu.
    pub fn relu(mut self) -> Rnn {
        self.nonlinearity = Nonlinearity::Relu;
        self
    }

    fn step(&self) -> Step {
        self.nonlinearity.step()
    }
}

macro_rules! one_state {
    ($($module:ident $name:literal),*) => {$(
        impl $module {
            /// `[batch, time, in] -> [batch, time, hidden * directions]` and the final state
            /// `[layers * directions, batch, hidden]`, starting from `state` or zeros; as in inference.
            pub fn forward(&self, x: &Tensor, state: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
                self.forward_in(x, state, Mode::Eval)
            }

            /// The forward pass in training (with dropout between layers) or inference.
            pub fn forward_in(&self, x: &Tensor, state: Option<&Tensor>, mode: Mode) -> Result<(Tensor, Tensor)> {
                let (y, mut last) = self.stack.run($name, x, &[state], mode, self.step())?;
                Ok((y, last.swap_remove(0)))
            }
        }

        impl Module for $module {
            fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
                self.stack.visit(prefix, f);
            }
        }
    )*};
}
one_state!(Rnn "rnn", Gru "gru");

/// The cell of [`Rnn`], which computes a single step.
pub struct RnnCell {
    cell: Cell,
    hidden: usize,
    /// tanh or relu.
    pub nonlinearity: Nonlinearity,
}

/// The cell of [`Lstm`], which computes a single step.
pub struct LstmCell {
    cell: Cell,
    hidden: usize,
}

/// The cell of [`Gru`], which computes a single step.
pub struct GruCell {
    cell: Cell,
    hidden: usize,
}

fn new_cell(session: &Session, gates: usize, input: usize, hidden: usize) -> Result<Cell> {
    if hidden == 0 {
        return Err(Error::value("recurrent", "a cell of width 0"));
    }
    Cell::new(session, String::new(), gates * hidden, input, hidden, &RecurrentOpts::default())
}

/// The dtype of a default state: that of the input, or f32 for integers.
fn float_of(x: &Tensor) -> DType {
    if x.dtype().is_float() { x.dtype() } else { DType::F32 }
}

/// The given state `[batch, hidden]`, or zeros, for an input `x` `[batch, in]`. `Error::Shape` for another shape.
fn state_or_zeros(op: &'static str, x: &Tensor, state: Option<&Tensor>, hidden: usize) -> Result<Tensor> {
    let wanted = [x.want_rank(op, 2)?[0], hidden];
    match state {
        None => Tensor::zeros(x.session(), float_of(x), &wanted),
        Some(s) if s.shape() == wanted => Ok(s.clone()),
        Some(s) => Err(Error::Shape { op, lhs: s.shape(), rhs: wanted.to_vec() }),
    }
}

impl RnnCell {
    /// A cell with tanh, and torch's initial distribution.
    pub fn new(session: &Session, input: usize, hidden: usize) -> Result<RnnCell> {
        Ok(RnnCell { cell: new_cell(session, 1, input, hidden)?, hidden, nonlinearity: Nonlinearity::Tanh })
    }

    /// The next state from an input `[batch, in]` and a state `[batch, hidden]` (zeros if `None`).
    pub fn forward(&self, x: &Tensor, state: Option<&Tensor>) -> Result<Tensor> {
        let h = state_or_zeros("rnn_cell", x, state, self.hidden)?;
        Ok(self.nonlinearity.step()(&self.cell, &self.cell.input(x)?, &[h])?.swap_remove(0))
    }
}

impl LstmCell {
    /// A cell with torch's initial distribution.
    pub fn new(session: &Session, input: usize, hidden: usize) -> Result<LstmCell> {
        Ok(LstmCell { cell: new_cell(session, 4, input, hidden)?, hidden })
    }

    /// The next state from an input `[batch, in]` and a state of two `[batch, hidden]` (zeros if `None`).
    pub fn forward(&self, x: &Tensor, state: Option<&LstmState>) -> Result<LstmState> {
        let h = state_or_zeros("lstm_cell", x, state.map(|s| &s.h), self.hidden)?;
        let c = state_or_zeros("lstm_cell", x, state.map(|s| &s.c), self.hidden)?;
        let next = lstm(&self.cell, &self.cell.input(x)?, &[h, c])?;
        Ok(LstmState { h: next[0].clone(), c: next[1].clone() })
    }
}

impl GruCell {
    /// A cell with torch's initial distribution.
    pub fn new(session: &Session, input: usize, hidden: usize) -> Result<GruCell> {
        Ok(GruCell { cell: new_cell(session, 3, input, hidden)?, hidden })
    }

    /// The next state from an input `[batch, in]` and a state `[batch, hidden]` (zeros if `None`).
    pub fn forward(&self, x: &Tensor, state: Option<&Tensor>) -> Result<Tensor> {
        let h = state_or_zeros("gru_cell", x, state, self.hidden)?;
        Ok(gru(&self.cell, &self.cell.input(x)?, &[h])?.swap_remove(0))
    }
}

macro_rules! cells {
    ($($cell:ident),*) => {$(
        impl Module for $cell {
            fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
                self.cell.visit(prefix, f);
            }
        }
    )*};
}
cells!(RnnCell, LstmCell, GruCell);
