//! Tests of the interpreters against known results.

mod alu;
mod program;
mod tensor;

fn f32s(v: &[f32]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn to_f32(b: &[u8]) -> Vec<f32> {
    b.as_chunks::<4>().0.iter().map(|&c| f32::from_le_bytes(c)).collect()
}

fn to_i32(b: &[u8]) -> Vec<i32> {
    b.as_chunks::<4>().0.iter().map(|&c| i32::from_le_bytes(c)).collect()
}
