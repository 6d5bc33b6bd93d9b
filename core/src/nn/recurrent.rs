//! LSTM and GRU, unrolled over time. The input's share of all gates is one product over the whole sequence; each step adds
//! the state's share. Weights are laid out as in torch (gates i f g o, and r z n).

use super::{Module, Role, bias_init, join};
use crate::tensor::{Session, Tensor};
use crate::{DType, Error, Result};

/// Weights of one layer in one direction.
struct Cell {
    /// `weight_ih_l0`, or `weight_ih_l1_reverse` ...: what comes after the tensor's name.
    suffix: String,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor,
    bias_hh: Tensor,
}

/// What LSTM and GRU share: a stack of layers, each with one or two directions.
struct Stack {
    cells: Vec<Cell>,
    hidden: usize,
    directions: usize,
}

impl Stack {
    fn new(
        session: &Session,
        gates: usize,
        input: usize,
        hidden: usize,
        layers: usize,
        directions: usize,
    ) -> Result<Stack> {
        if hidden == 0 || layers == 0 {
            return Err(Error::value("recurrent", format!("{layers} layers of {hidden}")));
        }
        let mut cells = Vec::new();
        for layer in 0..layers {
            let width = if layer == 0 { input } else { hidden * directions };
            for direction in 0..directions {
                let suffix = format!("_l{layer}{}", if direction == 1 { "_reverse" } else { "" });
                let init = |shape: &[usize]| bias_init(session, hidden, shape);
                cells.push(Cell {
                    suffix,
                    weight_ih: init(&[gates * hidden, width])?,
                    weight_hh: init(&[gates * hidden, hidden])?,
                    bias_ih: init(&[gates * hidden])?,
                    bias_hh: init(&[gates * hidden])?,
                });
            }
        }
        Ok(Stack { cells, hidden, directions })
    }

    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        for c in &self.cells {
            let tensors = [
                ("weight_ih", &c.weight_ih),
                ("weight_hh", &c.weight_hh),
                ("bias_ih", &c.bias_ih),
                ("bias_hh", &c.bias_hh),
            ];
            for (name, t) in tensors {
                f(&join(prefix, &format!("{name}{}", c.suffix)), Role::Parameter, t);
            }
        }
    }

    /// Runs every layer over `x` `[batch, time, in]`. `step(cell, gates from the input [batch, gates], state)` gives the
    /// next state, whose first tensor is the output. States are `[batch, hidden]` per cell.
    fn run(
        &self,
        op: &'static str,
        x: &Tensor,
        mut states: Vec<Vec<Tensor>>,
        step: impl Fn(&Cell, &Tensor, &[Tensor]) -> Result<Vec<Tensor>>,
    ) -> Result<(Tensor, Vec<Vec<Tensor>>)> {
        let shape = x.want_rank(op, 3)?;
        let mut sequence = x.clone();
        for (layer, cells) in self.cells.chunks(self.directions).enumerate() {
            let mut sides = Vec::new();
            for (direction, cell) in cells.iter().enumerate() {
                let gates = sequence.linear(&cell.weight_ih, Some(&cell.bias_ih))?;
                let state = &mut states[layer * self.directions + direction];
                let mut outputs = Vec::with_capacity(shape[1]);
                for i in 0..shape[1] {
                    let t = if direction == 1 { shape[1] - 1 - i } else { i };
                    *state = step(cell, &gates.select_at(1, t as i64)?, state)?;
                    outputs.push(state[0].clone());
                }
                if direction == 1 {
                    outputs.reverse();
                }
                sides.push(match outputs.is_empty() {
                    true => Tensor::zeros(x.session(), x.dtype(), &[shape[0], 0, self.hidden])?,
                    false => Tensor::stack(&outputs.iter().collect::<Vec<_>>(), 1)?,
                });
            }
            sequence = Tensor::cat(&sides.iter().collect::<Vec<_>>(), 2)?;
        }
        Ok((sequence, states))
    }

    /// One `[layers * directions, batch, hidden]` tensor cut into the cells' states; zeros if there is none.
    fn cut(&self, x: &Tensor, state: Option<&Tensor>) -> Result<Vec<Tensor>> {
        let batch = x.dim(0)?;
        let Some(state) = state else {
            let zero = Tensor::zeros(x.session(), DType::F32, &[batch, self.hidden])?;
            return Ok(vec![zero; self.cells.len()]);
        };
        let wanted = [self.cells.len(), batch, self.hidden];
        if state.shape() != wanted {
            return Err(Error::Shape { op: "recurrent", lhs: state.shape(), rhs: wanted.to_vec() });
        }
        (0..self.cells.len()).map(|i| state.select_at(0, i as i64)).collect()
    }
}

fn stacked(states: &[Vec<Tensor>], i: usize) -> Result<Tensor> {
    Tensor::stack(&states.iter().map(|s| &s[i]).collect::<Vec<_>>(), 0)
}

/// The state of an LSTM between calls: `[layers * directions, batch, hidden]` each.
#[derive(Clone, Debug)]
pub struct LstmState {
    /// Hidden state.
    pub h: Tensor,
    /// Cell state.
    pub c: Tensor,
}

/// Long short-term memory.
pub struct Lstm {
    stack: Stack,
}

impl Lstm {
    /// One direction.
    pub fn new(session: &Session, input: usize, hidden: usize, layers: usize) -> Result<Lstm> {
        Ok(Lstm { stack: Stack::new(session, 4, input, hidden, layers, 1)? })
    }

    /// Both directions; the outputs are joined.
    pub fn bidirectional(session: &Session, input: usize, hidden: usize, layers: usize) -> Result<Lstm> {
        Ok(Lstm { stack: Stack::new(session, 4, input, hidden, layers, 2)? })
    }

    /// `[batch, time, in] -> [batch, time, hidden * directions]` and the final state; starts from `state` or zeros.
    pub fn forward(&self, x: &Tensor, state: Option<&LstmState>) -> Result<(Tensor, LstmState)> {
        x.want_rank("lstm", 3)?;
        let h = self.stack.cut(x, state.map(|s| &s.h))?;
        let c = self.stack.cut(x, state.map(|s| &s.c))?;
        let states = h.into_iter().zip(c).map(|(h, c)| vec![h, c]).collect();
        let (y, states) = self.stack.run("lstm", x, states, |cell, gates, state| {
            let gates = gates.add(state[0].linear(&cell.weight_hh, Some(&cell.bias_hh))?)?;
            let parts = gates.chunk(4, -1)?;
            let (i, f, g, o) = (parts[0].sigmoid()?, parts[1].sigmoid()?, parts[2].tanh()?, parts[3].sigmoid()?);
            let c = f.mul(&state[1])?.add(i.mul(g)?)?.contiguous();
            Ok(vec![o.mul(c.tanh()?)?.contiguous(), c])
        })?;
        Ok((y, LstmState { h: stacked(&states, 0)?, c: stacked(&states, 1)? }))
    }
}

impl Module for Lstm {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        self.stack.visit(prefix, f);
    }
}

/// Gated recurrent unit (the reset gate is applied after the product, as in torch and cuDNN).
pub struct Gru {
    stack: Stack,
}

impl Gru {
    /// One direction.
    pub fn new(session: &Session, input: usize, hidden: usize, layers: usize) -> Result<Gru> {
        Ok(Gru { stack: Stack::new(session, 3, input, hidden, layers, 1)? })
    }

    /// Both directions; the outputs are joined.
    pub fn bidirectional(session: &Session, input: usize, hidden: usize, layers: usize) -> Result<Gru> {
        Ok(Gru { stack: Stack::new(session, 3, input, hidden, layers, 2)? })
    }

    /// `[batch, time, in] -> [batch, time, hidden * directions]` and the final state
    /// `[layers * directions, batch, hidden]`; starts from `state` or zeros.
    pub fn forward(&self, x: &Tensor, state: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        x.want_rank("gru", 3)?;
        let states = self.stack.cut(x, state)?.into_iter().map(|h| vec![h]).collect();
        let (y, states) = self.stack.run("gru", x, states, |cell, gates, state| {
            let h = &state[0];
            let own = h.linear(&cell.weight_hh, Some(&cell.bias_hh))?.chunk(3, -1)?;
            let input = gates.chunk(3, -1)?;
            let (r, z) = (input[0].add(&own[0])?.sigmoid()?, input[1].add(&own[1])?.sigmoid()?);
            let n = input[2].add(r.mul(&own[2])?)?.tanh()?;
            Ok(vec![n.add(z.mul(h.sub(&n)?)?)?.contiguous()])
        })?;
        Ok((y, stacked(&states, 0)?))
    }
}

impl Module for Gru {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        self.stack.visit(prefix, f);
    }
}
