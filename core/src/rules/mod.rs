//! Rule sets that several passes share. Policy: a rule is exact (same value for every input, NaN and -0.0 included) unless
//! its set says otherwise; integer rules that rest on ranges use `Graph::bounds` as the proof that nothing wraps.
