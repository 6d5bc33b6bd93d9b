//! A copy of a model with other values as its outputs. In: names of values that nodes of its main graph compute. Out: a
//! model with the nodes that these need. A runner of it can share the weights of the original's runner.

use super::check;
use super::model::Model;
use super::proto::ValueInfo;
use crate::error::{Error, Result};

impl Model {
    /// This model with these outputs, in this order.
    ///
    /// # Errors
    /// `E_VALUE` for a name that no node computes, a name given twice, and an empty list.
    pub fn with_outputs(&self, names: &[String]) -> Result<Model> {
        let bad = |what: String| Err(Error::value("outputs", what));
        let mut proto = self.proto.clone();
        let own = std::mem::take(&mut proto.graph.outputs);
        let mut ports = Vec::with_capacity(names.len());
        for (i, name) in names.iter().enumerate() {
            if names.iter().take(i).any(|n| n == name) {
                return bad(format!("`{name}` is there twice"));
            }
            if let Some(o) = own.iter().find(|o| o.name == *name) {
                proto.graph.outputs.push(o.clone());
                ports.extend(self.outputs().iter().find(|p| p.name == *name).cloned());
                continue;
            }
            if name.is_empty() || !self.nodes().iter().any(|n| n.outputs.contains(name)) {
                return bad(format!("no node of this model gives `{name}`"));
            }
            let info = ValueInfo { name: name.clone(), ..ValueInfo::default() };
            ports.push(super::model::port(&info)?);
            proto.graph.outputs.push(info);
        }
        if ports.is_empty() {
            return bad("no name is given".into());
        }
        check::sort(&mut proto)?;
        Ok(self.with_graph(proto, ports))
    }
}
