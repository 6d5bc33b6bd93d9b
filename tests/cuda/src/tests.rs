//! The interpreter on kernels written by hand, with results worked out by hand.

use crate::exec::{Fault, launch};
use crate::memory::Memory;
use crate::parse::{Entry, module};

fn kernel(block: &str, body: &str) -> Entry {
    let text = format!(
        ".version 7.0\n.target sm_80\n.address_size 64\n\n.visible .entry k(\n\t.param .u64 a\n)\n.reqntid {block}\n{{\n{body}\n\tret;\n}}\n"
    );
    module(&text).expect("a kernel").remove("k").expect("its name")
}

/// Runs a block over 32-bit words.
fn run(block: [u32; 3], body: &str, words: &[u32]) -> Result<Vec<u32>, Fault> {
    let entry = kernel(&block.map(|n| n.to_string()).join(", "), body);
    let mut memory = Memory::default();
    let at = memory.allocate(words.len() * 4).expect("room");
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    memory.get_mut(at, bytes.len()).expect("the allocation").copy_from_slice(&bytes);
    launch(&entry, [1; 3], block, &[at], &mut memory)?;
    let got = memory.get(at, bytes.len()).expect("the allocation");
    Ok(got.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

const HEAD: &str = "\t.reg .pred %p<4>;\n\t.reg .b32 %r<9>;\n\t.reg .b64 %d<4>;\n\tld.param.u64 %d1, [a];\n\tmov.u32 %r1, %tid.x;\n\
                    \tmad.wide.s32 %d2, %r1, 4, %d1;\n";

#[test]
fn threads_exchange_through_shuffles_and_shared_memory() {
    let swap = format!(
        "{HEAD}\tld.global.u32 %r2, [%d2];\n\tshfl.sync.bfly.b32 %r3, %r2, 1, 31, 0xffffffff;\n\tst.global.u32 [%d2], %r3;"
    );
    assert_eq!(run([4, 1, 1], &swap, &[1, 2, 3, 4]), Ok(vec![2, 1, 4, 3]));
    // each of 64 threads, two warps, reads what the last but its own number wrote
    let mirror = format!(
        "{HEAD}\t.shared .align 16 .b8 s[256];\n\tmov.u32 %r4, s;\n\tmad.lo.s32 %r5, %r1, 4, %r4;\n\tst.shared.u32 [%r5], %r1;\n\tbar.sync 0;\n\
         \tsub.s32 %r6, 63, %r1;\n\tmad.lo.s32 %r5, %r6, 4, %r4;\n\tld.shared.u32 %r7, [%r5];\n\tst.global.u32 [%d2], %r7;"
    );
    let want: Vec<u32> = (0..64).rev().collect();
    assert_eq!(run([64, 1, 1], &mirror, &[0; 64]), Ok(want));
}

#[test]
fn products_of_bytes_have_the_signs_of_their_names() {
    // bytes 1, 2, 255, 128 by 3, 255, 2, 128
    let (a, b) = (0x80ff_0201u32, 0x8002_ff03u32);
    let all = ["s32.s32", "s32.u32", "u32.s32", "u32.u32"];
    let sums = [3 - 2 - 2 + 16384, 3 + 510 - 2 - 16384, 3 - 2 + 510 - 16384, 3 + 510 + 510 + 16384];
    for (types, sum) in all.into_iter().zip(sums) {
        let body = format!(
            "{HEAD}\tld.global.u32 %r2, [%d2];\n\tld.global.u32 %r3, [%d2+4];\n\tld.global.u32 %r4, [%d2+8];\n\
             \tdp4a.{types} %r5, %r2, %r3, %r4;\n\tst.global.u32 [%d2], %r5;"
        );
        for c in [0, -7, i32::MAX] {
            let want = i32::wrapping_add(sum, c) as u32;
            assert_eq!(run([1, 1, 1], &body, &[a, b, c as u32]), Ok(vec![want, b, c as u32]), "{types}");
        }
    }
}

#[test]
fn loops_end_and_guards_hold_back() {
    let body = format!(
        "{HEAD}\tmov.b32 %r2, 0;\n\tmov.b32 %r3, 0;\n$loop:\n\tadd.s32 %r3, %r3, %r2;\n\tadd.s32 %r2, %r2, 1;\n\tsetp.lt.s32 %p1, %r2, 5;\n\
         \t@%p1 bra $loop;\n\tsetp.eq.s32 %p2, %r1, 1;\n\t@%p2 st.global.u32 [%d2], %r3;"
    );
    assert_eq!(run([2, 1, 1], &body, &[7, 7]), Ok(vec![7, 10]));
}

#[test]
fn what_leaves_memory_or_does_not_meet_is_a_fault() {
    let outside = format!("{HEAD}\tst.global.u32 [%d2+4], %r1;");
    assert!(matches!(run([2, 1, 1], &outside, &[0, 0]), Err(Fault::Address(_))));
    let misaligned = format!("{HEAD}\tld.global.v2.u32 {{%r2, %r3}}, [%d2];");
    assert!(matches!(run([2, 1, 1], &misaligned, &[0, 0, 0]), Err(Fault::Address(_))));
    let apart = format!("{HEAD}\tsetp.eq.s32 %p1, %r1, 0;\n\t@%p1 bra $end;\n\tbar.sync 0;\n$end:\n\tbar.sync 0;");
    assert!(matches!(run([2, 1, 1], &apart, &[0, 0]), Err(Fault::Launch(_))));
    let entry = kernel("2, 1, 1", HEAD);
    assert!(matches!(launch(&entry, [1; 3], [4, 1, 1], &[0], &mut Memory::default()), Err(Fault::Launch(_))));
}

#[test]
fn products_of_matrices_are_those_of_their_fragments() {
    // a is a matrix of ones in its first column, b has n in its first row: every row of the product is 0..8, and c adds 1
    let body = "\t.reg .pred %p<4>;\n\t.reg .b16 %h<3>;\n\t.reg .b32 %r<12>;\n\t.reg .f32 %f<9>;\n\t.reg .b64 %d<4>;\n\tld.param.u64 %d1, [a];\n\
        \tmov.u32 %r1, %tid.x;\n\tand.b32 %r2, %r1, 3;\n\tshr.u32 %r3, %r1, 2;\n\tsetp.eq.s32 %p1, %r2, 0;\n\tselp.b32 %r4, 0x3c00, 0, %p1;\n\
        \tmov.b32 %r5, 0;\n\tcvt.rn.f32.s32 %f1, %r3;\n\tcvt.rn.f16.f32 %h1, %f1;\n\tcvt.u32.u16 %r6, %h1;\n\tselp.b32 %r6, %r6, 0, %p1;\n\
        \tmov.f32 %f2, 0f3F800000;\n\tmov.f32 %f3, %f2;\n\tmov.f32 %f4, %f2;\n\tmov.f32 %f5, %f2;\n\
        \tmma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f2, %f3, %f4, %f5}, {%r4, %r4, %r5, %r5}, {%r6, %r5}, {%f2, %f3, %f4, %f5};\n\
        \tmad.lo.s32 %r7, %r3, 8, %r2;\n\tadd.s32 %r7, %r7, %r2;\n\tmad.wide.s32 %d2, %r7, 4, %d1;\n\
        \tst.global.v2.f32 [%d2], {%f2, %f3};\n\tst.global.v2.f32 [%d2+256], {%f4, %f5};";
    let want: Vec<u32> = (0..128).map(|i| ((i % 8 + 1) as f32).to_bits()).collect();
    assert_eq!(run([32, 1, 1], body, &[0; 128]), Ok(want));
}

#[test]
fn what_is_no_kernel_is_refused() {
    assert!(module("this is no program").is_err());
    let head = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k(\n)\n.reqntid 1, 1, 1\n{\n";
    for line in ["frob.s32 %r1, 1;", "mov.b32 %r1, 1;", "ld.global.v4.f64 {%a}, [%b];", "bra $nowhere;"] {
        assert!(module(&format!("{head}{line}\n\tret;\n}}\n")).is_err(), "{line}");
    }
    assert!(module(&format!("{head}\tret;\n")).is_err(), "no end");
}
