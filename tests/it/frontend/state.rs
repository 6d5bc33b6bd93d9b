//! State: assign, order, compaction, gradients after realize.
