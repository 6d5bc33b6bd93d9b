//! What several passes must know of a graph and none may find out in a way of its own. Nothing here changes a graph.
//!
//! | module | what it says | of |
//! |---|---|---|
//! | [`affine`] | how an index depends on loops: a stride for each | kernels |
//! | [`linear`] | an integer as an exact sum of scaled terms, for rules that rewrite it | both |
//! | [`product`] | is a reduction a sum of products, and which loops has which factor | both |
//! | [`reshape`] | the axes that a reshape puts together and takes apart | tensor graphs |
//! | [`constant`] | what is the same in every run | tensor graphs |
//! | [`attention`] | is a kernel softmax(scores) times values, and of what | kernels |
//! | [`work`] | what elementwise ops cost before there is code | both |
//! | [`role`] | what a kernel is as a whole, from which its opts follow | kernels |

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
