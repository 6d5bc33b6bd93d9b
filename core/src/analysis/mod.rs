//! Facts about graphs that several passes need, each derived in one way for all of them. Nothing here changes a graph.
//!
//! | module | what it says | of |
//! |---|---|---|
//! | [`affine`] | how an index depends on loops: a stride for each | kernels |
//! | [`linear`] | an integer as an exact sum of scaled terms, for rules that rewrite it | both |
//! | [`product`] | is a reduction a sum of products, and on which loops does each factor depend | both |
//! | [`reshape`] | the axes that a reshape merges and splits | tensor graphs |
//! | [`constant`] | what is the same in every run | tensor graphs |
//! | [`attention`] | is a kernel softmax(scores) times values, and which node is which | kernels |
//! | [`work`] | what elementwise ops cost before there is code | both |
//! | [`role`] | what a kernel computes as a whole, which decides about its opts | kernels |

pub mod affine;
pub mod attention;
pub(crate) mod constant;
pub(crate) mod linear;
pub(crate) mod product;
pub(crate) mod reshape;
pub mod role;
pub(crate) mod work;

pub use affine::{Affine, affine};
pub use role::Role;
