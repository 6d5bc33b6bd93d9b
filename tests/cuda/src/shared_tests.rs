//! Races in shared memory and conflicts of its banks, in kernels written by hand.

use crate::banks::Wavefronts;
use crate::direct;
use crate::exec::Fault;
use crate::tests::{HEAD, run, text};

/// What is wrong with a kernel of so many threads, whose `%r2` is where an array begins, `%r3` the thread's own word of it, and `%r4` the word of
/// a thread of another warp (`%r5` of a neighbour).
fn wrong(threads: u32, body: &str) -> Option<String> {
    let body = format!(
        "{HEAD}\t.shared .align 16 .b8 s0[512];\n\tmov.u32 %r2, s0;\n\tmad.lo.s32 %r3, %r1, 4, %r2;\n\txor.b32 %r4, %r1, 32;\n\
         \tmad.lo.s32 %r4, %r4, 4, %r2;\n\txor.b32 %r5, %r1, 1;\n\tmad.lo.s32 %r5, %r5, 4, %r2;\n\tsetp.lt.s32 %p1, %r1, 32;\n{body}"
    );
    match run([threads, 1, 1], &body, &vec![0; threads as usize]) {
        Ok(_) => None,
        Err(Fault::Race(what)) => Some(what),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn a_race_names_kernel_instructions_and_address() {
    // thread 0 runs first
    let (store, other, sync) = ("\tst.shared.u32 [%r3], %r1;\n", "\tld.shared.u32 %r6, [%r4];\n", "\tbar.sync 0;\n");
    for (parts, want) in [
        (
            &[store, other][..],
            "kernel k, line 25 `ld.shared.u32 %r6, [%r4]`: byte 0x80: thread 0 reads shared memory that nothing was written to (block [0, 0, 0])",
        ),
        (
            &[store, sync, store, other],
            "kernel k, line 26 `st.shared.u32 [%r3], %r1`: byte 0x80: thread 32 writes what thread 0 read in line 27 `ld.shared.u32 %r6, [%r4]`, \
             and no barrier is between (block [0, 0, 0])",
        ),
        (
            &["\t@%p1 st.shared.u32 [%r3], %r1;\n\t@%p1 st.shared.u32 [%r4], %r1;\n", other],
            "kernel k, line 26 `ld.shared.u32 %r6, [%r4]`: byte 0x0: thread 32 reads what thread 0 wrote in line 24 `@%p1 st.shared.u32 [%r3], %r1`, \
             and no barrier is between (block [0, 0, 0])",
        ),
    ] {
        assert_eq!(wrong(64, &parts.concat()).as_deref(), Some(want));
    }
}

#[test]
fn what_barriers_order_is_no_race() {
    let (own, other, neighbour) =
        ("\tst.shared.u32 [%r3], %r1;\n", "\tld.shared.u32 %r6, [%r4];\n", "\tld.shared.u32 %r6, [%r5];\n");
    let (sync, shuffle) = ("\tbar.sync 0;\n", "\tshfl.sync.bfly.b32 %r7, %r1, 1, 31, 0xffffffff;\n");
    let word = "\tst.shared.u32 [%r2], %r1;\n";
    for (parts, races) in [
        (&[own, sync, other][..], false),
        (&[own, sync, other, own], true),
        (&[own, sync, other, sync, own], false),
        (&[own, sync, own, sync, other, neighbour], false),
        // a thread knows what it did itself
        (&[own, "\tld.shared.u32 %r6, [%r3];\n", own], false),
        // a shuffle is no barrier, though the threads of a warp meet there
        (&[own, shuffle, neighbour], true),
        (&[own, sync, neighbour], false),
        (&[own, sync, neighbour, shuffle, own], true),
        // all write one word
        (&[word], true),
        (&["\tsetp.eq.s32 %p2, %r1, 5;\n\t@%p2 ", word.trim_start(), sync, "\tld.shared.u32 %r6, [%r2];\n"], false),
        (&["\tsetp.eq.s32 %p2, %r1, 5;\n\t@%p2 ", word.trim_start(), "\tld.shared.u32 %r6, [%r2];\n"], true),
        // parts of a word are bytes of their own
        (&["\tadd.s32 %r6, %r2, %r1;\n\tst.shared.u8 [%r6], %r1;\n"], false),
        (&["\tadd.s32 %r6, %r2, %r1;\n\tand.b32 %r6, %r6, -2;\n\tst.shared.u16 [%r6], %r1;\n"], true),
        (&[neighbour], true),
    ] {
        let body = parts.concat();
        assert_eq!(wrong(64, &body).is_some(), races, "{body}: {:?}", wrong(64, &body));
    }
}

#[test]
fn a_barrier_orders_those_that_come_to_it() {
    // the first warp writes, the second reads
    let pass = |first: &str, second: &str| {
        let (write, read) = ("\tst.shared.u32 [%r3], %r1;\n", "\tld.shared.u32 %r6, [%r4];\n");
        format!("\t@%p1 bra $first;\n{second}{read}\tbra $end;\n$first:\n{write}{first}$end:\n\tmov.u32 %r1, %r1;\n")
    };
    let (come, wait) = ("\tbar.arrive 1, 64;\n", "\tbar.sync 1, 64;\n");
    assert_eq!(wrong(64, &pass(come, wait)), None);
    assert_eq!(wrong(64, &pass(wait, wait)), None);
    // who only says that it has come learns nothing
    let reversed = "\t@%p1 bra $first;\n\tbar.sync 1, 64;\n\tst.shared.u32 [%r3], %r1;\n\tbra $end;\n$first:\n\tst.shared.u32 [%r3], %r1;\n\
                    \tbar.arrive 1, 64;\n\tst.shared.u32 [%r4], %r1;\n$end:\n\tmov.u32 %r1, %r1;\n";
    assert!(wrong(64, reversed).expect("a race").contains("wrote"));
}

#[test]
fn copies_race_from_start_to_wait() {
    let copy = |between: &str, after: &str| {
        format!(
            "\tshl.b32 %r6, %r1, 4;\n\tand.b32 %r6, %r6, 255;\n\tadd.s32 %r6, %r6, %r2;\n\tst.shared.u32 [%r3], %r1;\n\tbar.sync 0;\n\
             \tsetp.lt.s32 %p2, %r1, 16;\n\t@%p2 cp.async.cg.shared.global [%r6], [%d1], 16;\n\tcp.async.commit_group;\n{between}\
             \tcp.async.wait_group 0;\n{after}"
        )
    };
    let (sync, read) = ("\tbar.sync 0;\n", "\tld.shared.u32 %r7, [%r4];\n");
    assert_eq!(wrong(64, &copy("", &[sync, read].concat())), None);
    assert_eq!(wrong(64, &copy(sync, &[sync, read].concat())), None);
    assert!(wrong(64, &copy("", read)).is_some(), "a read before the barrier");
    assert!(wrong(64, &copy(&[sync, read, sync].concat(), "")).is_some(), "a read while the copy goes on");
    assert!(wrong(64, &copy("\tst.shared.u32 [%r3], %r1;\n", "")).is_some(), "a write while the copy goes on");
}

/// The cost of the one access of a warp whose threads store `words` words each, from a word on that is computed to `%r3` from their numbers.
fn cost(access: &str, words: &str) -> Wavefronts {
    let body = format!(
        "{HEAD}\t.shared .align 16 .b8 s0[8192];\n\tmov.u32 %r2, s0;\n\t{words}\n\tmad.lo.s32 %r4, %r3, 4, %r2;\n\t{access}"
    );
    let costs = direct::run(&text("32, 1, 1", &body), [1; 3], 0, &mut [vec![0; 128]]).expect("it runs");
    assert_eq!(costs.len(), 1);
    assert_eq!(costs[0].0, access.trim_end_matches(';'));
    costs[0].1
}

#[test]
fn conflicts_of_banks_are_counted() {
    let (one, two, four) = (
        "st.shared.u32 [%r4], %r1;",
        "st.shared.v2.u32 [%r4], {%r1, %r1};",
        "st.shared.v4.u32 [%r4], {%r1, %r1, %r1, %r1};",
    );
    for (access, words, extra) in [
        (one, "mov.u32 %r3, %r1;", 0),
        (one, "mul.lo.s32 %r3, %r1, 2;", 1),
        (one, "mul.lo.s32 %r3, %r1, 3;", 0),
        (one, "mul.lo.s32 %r3, %r1, 4;", 3),
        (one, "mul.lo.s32 %r3, %r1, 32;", 31),
        (one, "mul.lo.s32 %r3, %r1, 33;", 0),
        // half a warp is 32 words, a quarter likewise
        (two, "mul.lo.s32 %r3, %r1, 2;", 0),
        (two, "mul.lo.s32 %r3, %r1, 4;", 2),
        (four, "mul.lo.s32 %r3, %r1, 4;", 0),
        (four, "mul.lo.s32 %r3, %r1, 32;", 28),
        (four, "mul.lo.s32 %r3, %r1, 36;", 0),
    ] {
        assert_eq!(cost(access, words), Wavefronts { accesses: 1, extra }, "{access} {words}");
    }
    // threads that want the same word share it: here four do
    let shared = "\tshr.u32 %r3, %r1, 2;\n\tmad.lo.s32 %r4, %r3, 4, %r2;\n\tld.shared.u32 %r5, [%r4];\n";
    let body = format!(
        "{HEAD}\t.shared .align 16 .b8 s0[128];\n\tmov.u32 %r2, s0;\n\tmad.lo.s32 %r5, %r1, 4, %r2;\n\tst.shared.u32 [%r5], %r1;\n\
         \tbar.sync 0;\n{shared}"
    );
    let text = text("32, 1, 1", &body);
    let costs = direct::run(&text, [1; 3], 0, &mut [vec![0; 128]]).expect("it runs");
    let none = Wavefronts { accesses: 1, extra: 0 };
    assert_eq!(costs.iter().map(|c| c.1).collect::<Vec<_>>(), [none, none]);
}
