//! Tests of the rule sets: golden collapses, exhaustive small integers, random expressions, speed.

mod golden;
mod masks;
mod random;
mod speed;
