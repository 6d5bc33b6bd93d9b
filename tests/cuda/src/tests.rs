//! The interpreter on kernels written by hand, with results worked out by hand.

use crate::exec::{Fault, launch};
use crate::memory::Memory;
use crate::parse::{Entry, module};
use crate::stream::Launch;
use std::sync::Arc;

/// The text of a module with one kernel.
pub(crate) fn text(block: &str, body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n\n.visible .entry k(\n\t.param .u64 a\n)\n.reqntid {block}\n{{\n{body}\n\tret;\n}}\n"
    )
}

fn kernel(block: &str, body: &str) -> Entry {
    module(&text(block, body)).expect("a kernel").remove("k").expect("its name")
}

fn of(entry: Entry, block: [u32; 3], at: u64) -> Launch {
    Launch { entry: Arc::new(entry), grid: [1; 3], block, shared: 0, bits: vec![at] }
}

/// Runs a block over 32-bit words.
pub(crate) fn run(block: [u32; 3], body: &str, words: &[u32]) -> Result<Vec<u32>, Fault> {
    let entry = kernel(&block.map(|n| n.to_string()).join(", "), body);
    let mut memory = Memory::default();
    let at = memory.allocate(words.len() * 4).expect("room");
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    memory.get_mut(at, bytes.len()).expect("the allocation").copy_from_slice(&bytes);
    launch(&of(entry, block, at), &mut memory)?;
    let got = memory.get(at, bytes.len()).expect("the allocation");
    Ok(got.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

pub(crate) const HEAD: &str = "\t.reg .pred %p<4>;\n\t.reg .b32 %r<9>;\n\t.reg .b64 %d<4>;\n\tld.param.u64 %d1, [a];\n\tmov.u32 %r1, %tid.x;\n\
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
    let other = of(kernel("2, 1, 1", HEAD), [4, 1, 1], 0);
    assert!(matches!(launch(&other, &mut Memory::default()).map(drop), Err(Fault::Launch(_))));
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

/// A thread copies 16 bytes from the buffer's beginning to shared memory, and another 16 behind a gate; waits for all groups but so many;
/// and stores what lies there.
fn copy(wait: usize) -> Result<Vec<u32>, Fault> {
    let body = format!(
        "{HEAD}\t.shared .align 16 .b8 s0[32];\n\tmov.u32 %r2, s0;\n\tst.shared.v4.u32 [%r2], {{%r1, %r1, %r1, %r1}};\n\
         \tmov.b32 %r3, -1;\n\tst.shared.v4.u32 [%r2+16], {{%r3, %r3, %r3, %r3}};\n\
         \tcp.async.cg.shared.global [%r2], [%d1], 16;\n\tcp.async.commit_group;\n\tmov.b32 %r3, 4;\n\
         \tcp.async.cg.shared.global [%r2+16], [%d1], 16, %r3;\n\tcp.async.commit_group;\n\tcp.async.wait_group {wait};\n\
         \tbar.sync 0;\n\tld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r2];\n\tst.global.v4.u32 [%d1+16], {{%r4, %r5, %r6, %r7}};\n\
         \tld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r2+16];\n\tst.global.v4.u32 [%d1+32], {{%r4, %r5, %r6, %r7}};"
    );
    run([1, 1, 1], &body, &[5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0])
}

#[test]
fn copies_are_there_once_they_are_waited_for() {
    let before = u32::MAX;
    assert_eq!(copy(0), Ok(vec![5, 6, 7, 8, 5, 6, 7, 8, 5, 0, 0, 0]));
    assert_eq!(copy(1), Ok([&[5, 6, 7, 8, 5, 6, 7, 8][..], &[before; 4]].concat()));
    assert_eq!(copy(2), Ok([&[5, 6, 7, 8, 0, 0, 0, 0][..], &[before; 4]].concat()));
    let misaligned = format!(
        "{HEAD}\t.shared .align 16 .b8 s0[32];\n\tmov.u32 %r2, s0;\n\
        \tcp.async.cg.shared.global [%r2+4], [%d1], 16;\n\tcp.async.commit_group;\n\tcp.async.wait_group 0;"
    );
    assert!(matches!(run([1, 1, 1], &misaligned, &[0; 8]), Err(Fault::Address(_))));
}

#[test]
fn matrices_are_loaded_by_rows_and_turned() {
    // row i of the matrix has 8 i to 8 i + 7
    for (turn, element) in
        [("", (|row, pair| 8 * row + pair) as fn(u32, u32) -> u32), (".trans", |row, pair| 8 * pair + row)]
    {
        let body = format!(
            "{HEAD}\t.shared .align 16 .b8 s0[128];\n\tmov.u32 %r2, s0;\n\tmul.lo.s32 %r3, %r1, 2;\n\tadd.s32 %r4, %r3, 1;\n\
             \tmad.lo.s32 %r5, %r1, 4, %r2;\n\tst.shared.u16 [%r5], %r3;\n\tst.shared.u16 [%r5+2], %r4;\n\tbar.sync 0;\n\
             \tand.b32 %r6, %r1, 7;\n\tmad.lo.s32 %r7, %r6, 16, %r2;\n\
             \tldmatrix.sync.aligned.m8n8.x1{turn}.shared.b16 {{%r8}}, [%r7];\n\tst.global.u32 [%d2], %r8;"
        );
        let want = (0..32).map(|t| [0, 1].map(|i| element(t / 4, t % 4 * 2 + i))).map(|[x, y]| x | y << 16).collect();
        assert_eq!(run([32, 1, 1], &body, &[0; 32]), Ok(want), "{turn}");
    }
}

/// A product of ones by ones, whose left factor is in registers, with other instructions before it is started, before it is waited for, and after that.
fn product([before, between, after]: [&str; 3]) -> Result<Vec<u32>, Fault> {
    let body = format!(
        "\t.reg .pred %p<4>;\n\t.reg .pred %pfalse;\n\t.reg .b32 %r<12>;\n\t.reg .f32 %f<9>;\n\t.reg .b64 %d<5>;\n\t.shared .align 1024 .b8 s0[1024];\n\
         \tsetp.ne.s32 %pfalse, 0, 0;\n\tld.param.u64 %d1, [a];\n\tmov.u32 %r1, %tid.x;\n\tmad.wide.s32 %d2, %r1, 4, %d1;\n\
         \tmov.b32 %r4, 0x3c003c00;\n\tmov.b32 %r5, %r4;\n\tmov.b32 %r6, %r4;\n\tmov.b32 %r7, %r4;\n\
         \tmov.u32 %r2, s0;\n\tmad.lo.s32 %r3, %r1, 8, %r2;\n\tst.shared.v2.u32 [%r3], {{%r4, %r5}};\n\
         \tfence.proxy.async.shared::cta;\n\tbar.sync 0;\n\tshr.u32 %r8, %r2, 4;\n\tcvt.u64.u32 %d3, %r8;\n\
         \tor.b64 %d4, %d3, 0x4000004000010000;\n\twgmma.fence.sync.aligned;\n{before}\
         \twgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f1, %f2, %f3, %f4}}, {{%r4, %r5, %r6, %r7}}, %d4, %pfalse, 1, 1, 0;\n\
         \twgmma.commit_group.sync.aligned;\n{between}\twgmma.wait_group.sync.aligned 0;\n{after}\tst.global.f32 [%d2], %f1;"
    );
    run([128, 1, 1], &body, &[0; 128])
}

/// What a product adds is there once it is waited for, and no sooner; what it reads stays as it is until then, and was written before a fence.
#[test]
fn products_that_go_on_are_waited_for() {
    let ones = |x: f32| Ok(vec![x.to_bits(); 128]);
    assert_eq!(product([""; 3]), ones(16.0));
    assert_eq!(product(["", "", "\tadd.rn.f32 %f1, %f1, %f1;\n"]), ones(32.0));
    // the terms from the ninth on are zero
    assert_eq!(product(["\tmov.b32 %r6, 0;\n\twgmma.fence.sync.aligned;\n", "", ""]), ones(8.0));
    for (what, parts) in [
        ("no fence", ["\tmov.b32 %r4, %r5;\n", "", ""]),
        ("a factor that changes", ["", "\tmov.b32 %r4, 0;\n", ""]),
        ("a sum that is read", ["", "\tadd.rn.f32 %f5, %f1, %f1;\n", ""]),
        ("a sum that is written", ["", "\tmov.b32 %f1, 0;\n", ""]),
        ("memory that changes", ["", "\tmov.b32 %r9, 0;\n\tst.shared.u32 [%r3], %r9;\n", ""]),
    ] {
        assert!(matches!(product(parts), Err(Fault::Launch(_) | Fault::Race(_))), "{what}");
    }
}

#[test]
fn some_threads_wait_for_others_that_go_on() {
    let body = |come: &str| {
        format!(
            "{HEAD}\t.shared .align 16 .b8 s0[256];\n\tmov.u32 %r2, s0;\n\tand.b32 %r5, %r1, 31;\n\tmad.lo.s32 %r2, %r5, 4, %r2;\n\
             \tmov.b32 %r3, 0;\n\tmov.b32 %r4, 7;\n\tsetp.lt.s32 %p1, %r1, 32;\n\
             \t@%p1 bra $first;\n\tbar.sync 1, 64;\n\tld.shared.u32 %r3, [%r2];\n\tbra $end;\n$first:\n\
             \tst.shared.u32 [%r2], %r4;\n{come}$end:\n\tst.global.u32 [%d2], %r3;"
        )
    };
    let want = [[0; 32], [7; 32]].concat();
    assert_eq!(run([64, 1, 1], &body("\tbar.arrive 1, 64;\n"), &[1; 64]), Ok(want));
    for come in ["", "\tbar.arrive 2, 64;\n", "\tbar.arrive 1, 64;\n\tbar.arrive 1, 64;\n"] {
        assert!(matches!(run([64, 1, 1], &body(come), &[1; 64]), Err(Fault::Launch(_))), "{come}");
    }
}

/// What is freed stays in the pool up to its threshold, serves allocations of its size, and leaves when it is trimmed.
#[test]
fn a_pool_keeps_what_its_threshold_allows() {
    let mut memory = Memory::of(100);
    let freed = |memory: &mut Memory| {
        let at = memory.allocate_pooled(60).expect("room");
        assert!(memory.free(at) && !memory.free(at));
        assert_eq!((memory.reserved(), memory.allocate(50)), (60, None));
        memory.trim(memory.pool.threshold);
    };
    freed(&mut memory);
    assert_eq!(memory.reserved(), 0);
    let at = memory.allocate(50).expect("room");
    assert!(memory.free(at));
    memory.pool.threshold = u64::MAX;
    freed(&mut memory);
    assert_eq!((memory.reserved(), memory.allocate_pooled(50)), (60, None));
    let at = memory.allocate_pooled(60).expect("what was kept");
    assert_eq!(memory.reserved(), 60);
    memory.trim(0);
    assert_eq!(memory.reserved(), 60, "what is in use stays");
    assert!(memory.free(at));
    memory.trim(0);
    assert_eq!(memory.reserved(), 0);
    assert!(memory.allocate_pooled(50).is_some());
}

#[test]
fn what_is_no_kernel_is_refused() {
    assert!(module("this is no program").is_err());
    let head = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k(\n)\n.reqntid 1, 1, 1\n{\n";
    for line in ["frob.s32 %r1, 1;", "mov.b32 %r1, 1;", "ld.global.v4.f64 {%a}, [%b];", "bra $nowhere;"] {
        assert!(module(&format!("{head}{line}\n\tret;\n}}\n")).is_err(), "{line}");
    }
    assert!(module(&format!("{head}\tret;\n")).is_err(), "no end");
    for (line, least) in [
        ("cp.async.wait_group 0;", "sm_80"),
        ("fence.proxy.async.shared::cta;", "sm_90a"),
        ("wgmma.fence.sync.aligned;", "sm_90a"),
        ("bar.sync 0;", "sm_75"),
    ] {
        for target in ["sm_75", "sm_80", "sm_90", "sm_90a", "sm_100"] {
            let number = |name: &str| name[3..].trim_end_matches('a').parse::<u32>().expect("a number");
            let has = if line.starts_with("wgmma") { target == least } else { number(target) >= number(least) };
            let text = format!("{head}{line}\n\tret;\n}}\n").replace("sm_80", target);
            assert_eq!(module(&text).is_ok(), has, "{line} on {target}");
        }
    }
}
