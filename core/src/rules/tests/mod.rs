//! Tests of the rule sets: expected results, exhaustive small integers, random expressions, speed.

mod decomp;
mod every;
mod golden;
mod masks;
mod random;
mod speed;
