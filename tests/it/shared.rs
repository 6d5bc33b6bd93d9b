//! Shared memory of products on NVIDIA's GPUs, as the emulator sees it: conflicts of its banks, and barriers that are needed.
#![cfg(target_os = "linux")]

use gradloom::DType::{self, BF16, F16, F32};
use gradloom_core::codegen::compile;
use gradloom_core::render::{Code, Source, ptx, render};
use gradloom_core::target::{Sm, Target};
use gradloom_cuda::{Wavefronts, direct};
use gradloom_tests::networks::{Net, kernels, load};

/// The text of a kernel, its parameters' bytes, and bytes of shared memory that its launch gives.
struct Product {
    text: String,
    bytes: Vec<usize>,
    shared: usize,
}

impl Product {
    /// The kernel of `m` by `n` results with `k` terms, whose factors lie in memory as they are or turned.
    fn new(sm: Sm, dtype: DType, [m, n, k]: [usize; 3], turned: [bool; 2]) -> Product {
        let (net, t) = (Net::of(dtype), Target::cuda("cuda", sm));
        let factor = |rows: usize, columns: usize, turned: bool| {
            let shape = if turned { [columns, rows] } else { [rows, columns] };
            let x = net.input_of(dtype, &shape).expect("an input");
            if turned { x.permute(&[1, 0]).expect("a matrix") } else { x }
        };
        let z = factor(m, k, turned[0]).matmul(&factor(k, n, turned[1])).expect("a product");
        let nodes = load(&net, &[z], &t).expect("a graph");
        let all = kernels(&net, &nodes, &t).expect("kernels");
        assert_eq!(all.len(), 1, "a product is one kernel");
        let program = compile(&all[0].0, &t, None).expect("a program");
        assert_eq!(program.refused, 0, "opts that do not fit");
        let source = Source::new(&program, render(&program, &t).expect("a text"));
        let Code::Text(text) = &source.code else { panic!("PTX is text") };
        Product {
            text: text.clone(),
            bytes: source.params.iter().map(|p| p.len * p.dtype.size()).collect(),
            shared: ptx::dynamic_shared_bytes(source.scratch),
        }
    }

    /// Runs a text in its place, the first block alone, on zeros.
    fn run(&self, text: &str) -> Result<Vec<(String, Wavefronts)>, String> {
        let mut buffers: Vec<Vec<u8>> = self.bytes.iter().map(|&n| vec![0; n]).collect();
        direct::run(text, [1; 3], self.shared, &mut buffers)
    }

    /// How many times more than their bytes need instructions ask shared memory that write to it, and that read from it.
    fn conflicts(&self) -> [u64; 2] {
        let mut extra = [0; 2];
        let all = self.run(&self.text).expect("it runs");
        for (instruction, cost) in &all {
            assert!(cost.accesses > 0, "{instruction}");
            let reads = instruction.contains("ld.shared") || instruction.contains("ldmatrix");
            extra[usize::from(reads)] += cost.extra;
        }
        assert!(!all.is_empty(), "the product is staged");
        extra
    }
}

/// Factors as they are, the second turned, the first turned, both turned.
const TURNED: [[bool; 2]; 4] = [[false, false], [false, true], [true, false], [true, true]];

/// What a block of a kernel reads from shared memory has no conflicts from sm_80 on, nor has what it copies there for `wgmma`; other copies have
/// some where a row of the staged block is shorter than 128 bytes, because eight threads write two rows or more at a time.
#[test]
fn products_have_the_conflicts_that_are_known() {
    let none = [0, 0];
    for ((major, minor), dtype, want) in [
        ((7, 5), F32, [[0, 1024], [896, 1024], none, [896, 0]]),
        ((8, 0), F16, [[256, 0], [512, 0], none, [256, 0]]),
        ((8, 0), BF16, [[256, 0], [512, 0], none, [256, 0]]),
        ((8, 0), F32, [[176, 0], [528, 0], none, [352, 0]]),
        ((9, 0), F16, [none; 4]),
        ((9, 0), F32, [[704, 0], [1056, 0], none, [352, 0]]),
    ] {
        let sm = Sm::of(major, minor).expect("a known capability");
        let got = TURNED.map(|turned| Product::new(sm, dtype, [1024, 1024, 128], turned).conflicts());
        assert_eq!(got, want, "{} {dtype}", sm.name());
    }
}

/// Without any of a kernel's barriers the emulator finds a race, but for one that stands before a loop that begins with a barrier.
#[test]
fn every_barrier_of_a_product_is_needed() {
    for ((major, minor), dtype, spare) in [((7, 5), F32, 0), ((8, 0), F32, 1), ((8, 0), F16, 1), ((9, 0), F16, 0)] {
        for turned in TURNED {
            let sm = Sm::of(major, minor).expect("a known capability");
            let p = Product::new(sm, dtype, [1024, 1024, 256], turned);
            assert_eq!(p.run(&p.text).map(drop), Ok(()));
            let lines: Vec<&str> = p.text.lines().collect();
            let barriers = (0..lines.len()).filter(|&i| lines[i].trim().starts_with("bar.sync"));
            let without = |i: usize| p.run(&[&lines[..i], &lines[i + 1..]].concat().join("\n"));
            let (mut races, mut silent) = (0, 0);
            for i in barriers {
                match without(i) {
                    Ok(_) => silent += 1,
                    Err(what) => {
                        assert!(
                            what.contains("shared memory that nothing was written to")
                                || what.contains("no barrier is between"),
                            "{what}"
                        );
                        races += 1;
                    }
                }
            }
            assert!(races > 0 && silent == spare, "{} {dtype} {turned:?}: {races} of {}", sm.name(), races + silent);
        }
    }
}
