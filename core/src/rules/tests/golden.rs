//! Expected results of simplifying index expressions.

use crate::rules::simplify;
use crate::rules::testing::{parse, range, show};
use crate::uop::{Graph, UOp};

/// `ranges[i]` is the length of `r{i}`.
fn check(ranges: &[usize], text: &str, want: &str) {
    let g = &mut Graph::new();
    let names = ["r0", "r1", "r2", "r3", "r4", "r5"];
    let rs: Vec<(&str, UOp)> = ranges.iter().enumerate().map(|(i, &n)| (names[i], range(g, i as u8, n))).collect();
    let u = parse(g, text, &rs);
    let got = simplify(g, u);
    let want = parse(g, want, &rs);
    assert_eq!(show(g, got), show(g, want), "{text}");
    assert_eq!(simplify(g, got), got, "{text}: not a fixpoint");
}

#[test]
fn reshapes_collapse() {
    check(&[4, 6], "(r0*6 + r1) // 6", "r0");
    check(&[4, 6], "(r0*6 + r1) % 6", "r1");
    check(&[8, 4, 6], "((r0*4 + r1)*6 + r2) // 24", "r0");
    check(&[8, 4, 6], "((r0*4 + r1)*6 + r2) // 6 % 4", "r1");
    check(&[8, 4, 6], "((r0*4 + r1)*6 + r2) // 24 % 7", "r0 % 7");
    check(&[8, 4, 6], "((r0*4 + r1)*6 + r2) % 24 // 6", "r1");
    check(&[8, 4, 6], "((r0*4 + r1)*6 + r2) // 12", "r0*2 + r1//2");
    check(&[8, 4, 6], "((r0*4 + r1)*6 + r2) % 12", "r1%2*6 + r2");
    check(&[24], "(r0 // 6)*6 + r0 % 6", "r0");
    check(&[240], "(r0 // 60)*60 + (r0 // 6 % 10)*6 + r0 % 6", "r0");
    check(&[240], "r0 // 60 * 60 + r0 % 60 // 6 * 6 + r0 % 6", "r0");
    check(&[240], "r0 % 60 // 6 * 6 + r0 % 6", "r0 % 60");
    check(&[240], "r0 - r0 // 7 * 7", "r0 % 7");
    check(&[240, 3], "(r0 + r1) - (r0 + r1) // 7 * 7", "(r0 + r1) % 7");
    check(&[240], "r0 // 4 // 5", "r0 // 20");
    check(&[240], "(r0 // 4 + 3) // 5", "(r0 + 12) // 20");
    check(&[240], "r0 * 4 // 2", "r0 * 2");
    check(&[240], "r0 * 4 // 6", "r0 * 2 // 3");
    check(&[240], "r0 * 4 % 6", "r0 * 2 % 3 * 2");
    check(&[240], "(r0 * 4 + 3) % 6", "(r0 * 2 + 1) % 3 * 2 + 1");
    check(&[240], "r0 % 12 % 4", "r0 % 4");
    check(&[240], "(r0 % 12 + 5) % 4", "(r0 + 1) % 4");
    check(&[240], "r0 % 12 // 4", "r0 // 4 % 3");
    check(&[5], "(r0 + 3) // 4 * 4 + (r0 + 3) % 4", "r0 + 3");
    check(&[4, 4], "(r0*4 + r1 + 16) // 16", "1");
    check(&[4, 4], "(r0*4 + r1 + 16) % 16", "r0*4 + r1");
    check(&[16, 4], "(r0*5 + r1) // 5 * 5 + (r0*5 + r1) % 5", "r0*5 + r1");
    check(&[16, 20], "(r0*4 + r1) // 4 * 4 + (r0*4 + r1) % 4", "r0*4 + r1");
}

#[test]
fn sums_are_canonical() {
    check(&[4, 4], "r1 + r0*3 - r1", "r0*3");
    check(&[4, 4], "r1 + r0", "r0 + r1");
    check(&[4, 4], "(r1 + 1)*3 + (r0 + 2)*2 - 4", "r0*2 + r1*3 + 3");
    check(&[4, 4], "r0 + r0 + r0", "r0*3");
    check(&[4, 4], "r1 * (2 * r0)", "r0 * r1 * 2");
}

#[test]
fn comparisons_reduce() {
    check(&[4, 6], "r0*6 + r1 < 24", "true");
    check(&[4, 6], "r0*6 + r1 < 12", "r0 < 2");
    check(&[4, 6], "r0*6 + r1 < 17", "r0*6 + r1 < 17");
    check(&[4, 5], "r0*6 + r1 < 17", "r0 < 3");
    check(&[40], "r0 // 4 < 3", "r0 < 12");
    check(&[40], "!(r0 // 4 < 3)", "11 < r0");
    check(&[40], "2 < r0 // 4", "11 < r0");
    check(&[40], "r0 + 3 < 7", "r0 < 4");
    check(&[40], "-1 < r0 - 3", "2 < r0");
    // blocks of 32 before and behind a border at 640
    check(&[40, 32], "r0 * 32 + r1 < 640", "r0 < 20");
    check(&[40, 32], "639 < r0 * 32 + r1", "19 < r0");
    check(&[40, 40], "r0 < r0 + r1", "0 < r1");
    check(&[40, 40], "r1 - r0 < 5", "r1 < r0 + 5");
    check(&[40], "r0 * 2 == 7", "false");
    check(&[40], "r0 * 2 == 8", "r0 == 4");
    check(&[40, 40], "r0 < 5 & r0 < 7 & r1 < 3", "r0 < 5 & r1 < 3");
    check(&[40], "r0 < 5 & 6 < r0", "false");
    check(&[40, 40], "r0 < 5 & r0 + r1 < 60", "r0 < 5");
}
