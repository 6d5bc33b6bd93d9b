//! Tests of the rule sets: golden collapses, exhaustive small integers, random expressions, speed.

mod every;
mod golden;
mod masks;
mod random;
mod speed;
