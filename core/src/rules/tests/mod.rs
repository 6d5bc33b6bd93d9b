//! Tests of the rule sets: golden collapses, exhaustive small integers, random expressions, speed.

mod decomp;
mod every;
mod golden;
mod masks;
mod random;
mod speed;
