//! Lengths as affine forms (a constant plus a multiple of each variable), and how such a form is recognised from its
//! values in some builds of a graph.
//! Never: nodes of graphs.

use smallvec::SmallVec;

/// A length that differs from run to run: a launch scalar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The launch scalar's name.
    pub name: String,
    /// Smallest value.
    pub min: i64,
    /// Largest value.
    pub max: i64,
}

/// An affine form of the variables: a constant plus a multiple of each variable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// The constant term.
    pub constant: i64,
    /// The factor of each variable, by its number; trailing zeros are left out.
    pub times: SmallVec<[i64; 4]>,
}

impl Form {
    /// A constant form.
    pub fn number(n: i64) -> Form {
        Form { constant: n, times: SmallVec::new() }
    }

    /// The variable with this number.
    pub fn variable(i: usize) -> Form {
        let mut times = SmallVec::from_elem(0, i);
        times.push(1);
        Form { constant: 0, times }
    }

    /// Is it constant?
    pub fn is_number(&self) -> bool {
        self.times.is_empty()
    }

    /// `self + by * other`; `None` where that overflows.
    pub fn plus(&self, other: &Form, by: i64) -> Option<Form> {
        let n = self.times.len().max(other.times.len());
        let at = |f: &Form, i: usize| f.times.get(i).copied().unwrap_or(0);
        let sum = |a: i64, b: i64| a.checked_add(b.checked_mul(by)?);
        let times = (0..n).map(|i| sum(at(self, i), at(other, i))).collect::<Option<_>>()?;
        Some(Form { constant: sum(self.constant, other.constant)?, times }.trimmed())
    }

    /// The form divided by `k`, if all numbers of it are divisible.
    pub fn over(&self, k: i64) -> Option<Form> {
        let part = |n: i64| (n.checked_rem(k)? == 0).then(|| n / k);
        let times = self.times.iter().map(|&n| part(n)).collect::<Option<_>>()?;
        Some(Form { constant: part(self.constant)?, times })
    }

    /// Its value for given values of the variables.
    pub fn at(&self, values: &[i64]) -> i64 {
        self.times.iter().zip(values).fold(self.constant, |n, (k, v)| n.saturating_add(k.saturating_mul(*v)))
    }

    /// Its least and largest value within the bounds of the variables.
    pub fn bounds(&self, vars: &[Variable]) -> (i64, i64) {
        let end = |low: bool| {
            let of = |(k, v): (&i64, &Variable)| k.saturating_mul(if (*k > 0) == low { v.min } else { v.max });
            self.times.iter().zip(vars).map(of).fold(self.constant, i64::saturating_add)
        };
        (end(true), end(false))
    }

    fn trimmed(mut self) -> Form {
        while self.times.last() == Some(&0) {
            self.times.pop();
        }
        self
    }
}

/// The values of the variables in each build. The first build is the base; then comes one build for each variable,
/// which differs from the base in that variable alone and so gives its factor; the others check the forms that were
/// found.
#[derive(Clone, Debug)]
pub struct Points(Vec<Vec<i64>>);

/// Lengths for the builds: larger than what is constant-folded while a graph is built, odd, and no multiples of each
/// other, so that different forms have different values.
const TRIED: [i64; 8] = [11, 13, 17, 19, 23, 29, 31, 37];
/// The smallest length in any of these builds.
const LEAST: i64 = 9;
/// The most variables of one graph.
pub const MOST_VARIABLES: usize = 4;

impl Points {
    /// The values to build for. The last builds are at the upper bounds, where a shape that is only piecewise affine
    /// shows.
    pub fn new(vars: &[Variable]) -> Points {
        let first: Vec<i64> = (0..vars.len()).map(|i| TRIED[i]).collect();
        let mut list = vec![first.clone()];
        for i in 0..vars.len() {
            let mut one = first.clone();
            one[i] += 3 + i as i64;
            list.push(one);
        }
        let other =
            |(i, v): (usize, &Variable)| (TRIED[(i * 3 + 5) % 8] + 4 * i as i64).min(v.max.max(LEAST + i as i64));
        list.push(vars.iter().enumerate().map(other).collect());
        let high = |by: i64| vars.iter().enumerate().map(|(i, v)| (v.max - by * (i as i64 + 1)).max(LEAST)).collect();
        list.push(high(0));
        list.push(high(1));
        Points(list)
    }

    /// Values at the lower bounds and just above, for a check of shapes alone: the graph may be folded in another way
    /// there, but its shapes have to be those that the forms give.
    pub fn least(vars: &[Variable]) -> [Vec<i64>; 2] {
        let next = |(i, v): (usize, &Variable)| (v.min + 1 + i as i64).min(v.max);
        [vars.iter().map(|v| v.min).collect(), vars.iter().enumerate().map(next).collect()]
    }

    /// The values of the variables, one list for each build.
    pub fn lists(&self) -> &[Vec<i64>] {
        &self.0
    }

    /// The form that has these values in the builds, if there is one.
    pub fn form(&self, values: &[i64]) -> Option<Form> {
        let (first, first_value) = (&self.0[0], values[0]);
        let mut times = SmallVec::new();
        let mut constant = first_value;
        for (i, v) in first.iter().enumerate() {
            let (step, more) = (self.0[i + 1][i] - v, values[i + 1].checked_sub(first_value)?);
            if more % step != 0 {
                return None;
            }
            times.push(more / step);
            constant = constant.checked_sub((more / step).checked_mul(*v)?)?;
        }
        let form = Form { constant, times }.trimmed();
        self.0.iter().zip(values).all(|(p, v)| form.at(p) == *v).then_some(form)
    }

    /// Forms whose product has these values in the builds; forms in `known` are tried first as factors.
    pub fn product(&self, values: &[i64], known: &[Form]) -> Option<SmallVec<[Form; 3]>> {
        let (mut rest, mut out) = (values.to_vec(), SmallVec::new());
        loop {
            if let Some(f) = self.form(&rest) {
                if out.is_empty() || f != Form::number(1) {
                    out.push(f);
                }
                return Some(out);
            }
            let of = |f: &Form| -> Vec<i64> { self.0.iter().map(|p| f.at(p)).collect() };
            let fits = |f: &&Form| of(f).iter().zip(&rest).all(|(d, v)| *d > 1 && v % d == 0);
            let f = known.iter().find(fits).filter(|_| out.len() < MOST_VARIABLES)?;
            rest.iter_mut().zip(of(f)).for_each(|(v, d)| *v /= d);
            out.push(f.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars() -> Vec<Variable> {
        ["b", "l"].map(|n| Variable { name: n.into(), min: 2, max: 64 }).to_vec()
    }

    #[test]
    fn forms_are_found_by_their_values() {
        let points = Points::new(&vars());
        let values = |f: &dyn Fn(i64, i64) -> i64| points.lists().iter().map(|p| f(p[0], p[1])).collect::<Vec<_>>();
        let f = points.form(&values(&|b, l| 2 * l - b + 3)).unwrap();
        assert_eq!((f.constant, &f.times[..], f.at(&[5, 7])), (3, &[-1, 2][..], 12));
        assert_eq!(f.bounds(&vars()), (2 * 2 - 64 + 3, 2 * 64 - 2 + 3));
        let known = [Form::variable(0), Form::variable(1)];
        assert_eq!(points.product(&values(&|b, l| 12 * b * l), &known).unwrap().len(), 2);
        // a piecewise function, or one that is not integral everywhere, is no form
        assert_eq!(points.form(&values(&|_, l| l.min(50))), None);
        assert_eq!(points.form(&values(&|_, l| l / 2)), None);
        assert_eq!(points.form(&values(&|_, l| (l + 15) / 16 * 16)), None);
    }
}
