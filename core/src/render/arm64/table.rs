//! Instruction words of AArch64: for each instruction the bits that do not depend on its operands, and the bit position
//! of each operand. After the Arm Architecture Reference Manual for A-profile, chapter C4 ("A64 instruction set
//! encoding"). Scalar floats are given for f32, general registers for 32 bits; [`double`] and [`full`] make the other
//! form.

/// An instruction without its operands, and where these are encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::render) struct Code {
    pub(super) word: u32,
    /// The lowest bit of each operand's field; memory operands are encoded separately.
    pub(super) at: [u8; 4],
    /// Size of the memory operand, as the base-2 logarithm of bytes.
    pub(super) memory: u8,
}

const fn code(word: u32, at: [u8; 4]) -> Code {
    Code { word, at, memory: 0 }
}

/// Two registers: `Rd`, `Rn`.
const fn r2(word: u32) -> Code {
    code(word, [0, 5, 0, 0])
}

/// Three registers: `Rd`, `Rn`, `Rm`.
const fn r3(word: u32) -> Code {
    code(word, [0, 5, 16, 0])
}

/// Four registers: `Rd`, `Rn`, `Rm`, `Ra`.
const fn r4(word: u32) -> Code {
    code(word, [0, 5, 16, 10])
}

/// `Rd`, `Rn` and an immediate.
const fn imm(word: u32, at: u8) -> Code {
    code(word, [0, 5, at, 0])
}

/// A load or a store, in the form with an unsigned offset.
const fn mem(word: u32, memory: u8) -> Code {
    Code { word, at: [0; 4], memory }
}

/// The form for 64-bit general registers.
pub(super) const fn full(c: Code, yes: bool) -> Code {
    Code { word: if yes { c.word | 1 << 31 } else { c.word }, ..c }
}

/// The form of a bit field instruction for 64-bit registers.
pub(super) const fn full_field(c: Code, yes: bool) -> Code {
    Code { word: if yes { c.word | 1 << 31 | 1 << 22 } else { c.word }, ..c }
}

/// The form for f64.
pub(super) const fn double(c: Code, yes: bool) -> Code {
    Code { word: if yes { c.word | 1 << 22 } else { c.word }, ..c }
}

// general registers
pub(super) const ADD: Code = r3(0x0b00_0000);
/// Adds the third operand shifted left by the fourth.
pub(super) const ADD_SHIFTED: Code = r4(0x0b00_0000);
pub(super) const SUB: Code = r3(0x4b00_0000);
pub(super) const AND: Code = r3(0x0a00_0000);
pub(super) const ORR: Code = r3(0x2a00_0000);
pub(super) const EOR: Code = r3(0x4a00_0000);
pub(super) const ADD_IMM: Code = imm(0x1100_0000, 10);
pub(super) const SUB_IMM: Code = imm(0x5100_0000, 10);
/// The immediate is shifted left by 12 bits.
pub(super) const ADD_IMM12: Code = imm(0x1140_0000, 10);
pub(super) const SUB_IMM12: Code = imm(0x5140_0000, 10);
pub(super) const CMP: Code = code(0x6b00_001f, [5, 16, 0, 0]);
pub(super) const CMP_IMM: Code = code(0x7100_001f, [5, 10, 0, 0]);
pub(super) const CMN_IMM: Code = code(0x3100_001f, [5, 10, 0, 0]);
pub(super) const NEG: Code = code(0x4b00_03e0, [0, 16, 0, 0]);
pub(super) const MOV: Code = code(0x2a00_03e0, [0, 16, 0, 0]);
pub(super) const MUL: Code = r3(0x1b00_7c00);
/// `d = a - n * m`: `Rd`, `Rn`, `Rm`, `Ra`.
pub(super) const MSUB: Code = r4(0x1b00_8000);
pub(super) const SDIV: Code = r3(0x1ac0_0c00);
pub(super) const UDIV: Code = r3(0x1ac0_0800);
pub(super) const LSLV: Code = r3(0x1ac0_2000);
pub(super) const LSRV: Code = r3(0x1ac0_2400);
pub(super) const ASRV: Code = r3(0x1ac0_2800);
/// Bit field move: `Rd`, `Rn`, the rotation, the last bit.
pub(super) const UBFM: Code = code(0x5300_0000, [0, 5, 16, 10]);
pub(super) const SBFM: Code = code(0x1300_0000, [0, 5, 16, 10]);
/// `Rd`, 16 bits of immediate, and which quarter of the register they set.
pub(super) const MOVZ: Code = code(0x5280_0000, [0, 5, 21, 0]);
pub(super) const MOVN: Code = code(0x1280_0000, [0, 5, 21, 0]);
pub(super) const MOVK: Code = code(0x7280_0000, [0, 5, 21, 0]);
/// Conditional select: `Rd`, its value if the condition holds, its value otherwise, the condition.
pub(super) const CSEL: Code = code(0x1a80_0000, [0, 5, 16, 12]);
/// `Rd` is 1 unless the condition holds.
pub(super) const CSET_UNLESS: Code = code(0x1a9f_07e0, [0, 12, 0, 0]);
/// The address of a constant.
pub(super) const ADR: Code = mem(0x1000_0000, 0);
pub(super) const B: Code = code(0x1400_0000, [0; 4]);
pub(super) const RET: Code = code(0xd65f_03c0, [0; 4]);

/// A jump on a condition.
pub(super) const fn b_if(condition: u8) -> Code {
    code(0x5400_0000 | condition as u32, [0; 4])
}

/// Condition codes. After a float comparison `MI` means less; neither it nor `EQ` holds if an operand is NaN.
pub(super) mod cond {
    pub(in super::super) const EQ: u8 = 0;
    pub(in super::super) const NE: u8 = 1;
    pub(in super::super) const HS: u8 = 2;
    pub(in super::super) const LO: u8 = 3;
    pub(in super::super) const MI: u8 = 4;
    pub(in super::super) const HI: u8 = 8;
    pub(in super::super) const GE: u8 = 10;
    pub(in super::super) const LT: u8 = 11;
    pub(in super::super) const GT: u8 = 12;

    /// The opposite.
    pub(in super::super) const fn not(c: u8) -> u8 {
        c ^ 1
    }
}

// memory
pub(super) const LDRB: Code = mem(0x3940_0000, 0);
pub(super) const LDRSB: Code = mem(0x39c0_0000, 0);
pub(super) const LDRH: Code = mem(0x7940_0000, 1);
pub(super) const LDRSH: Code = mem(0x79c0_0000, 1);
pub(super) const LDR_W: Code = mem(0xb940_0000, 2);
pub(super) const LDR_X: Code = mem(0xf940_0000, 3);
pub(super) const STRB: Code = mem(0x3900_0000, 0);
pub(super) const STRH: Code = mem(0x7900_0000, 1);
pub(super) const STR_W: Code = mem(0xb900_0000, 2);
pub(super) const STR_X: Code = mem(0xf900_0000, 3);
pub(super) const LDR_H: Code = mem(0x7d40_0000, 1);
pub(super) const LDR_S: Code = mem(0xbd40_0000, 2);
pub(super) const LDR_D: Code = mem(0xfd40_0000, 3);
pub(super) const LDR_Q: Code = mem(0x3dc0_0000, 4);
pub(super) const STR_H: Code = mem(0x7d00_0000, 1);
pub(super) const STR_S: Code = mem(0xbd00_0000, 2);
pub(super) const STR_D: Code = mem(0xfd00_0000, 3);
pub(super) const STR_Q: Code = mem(0x3d80_0000, 4);
/// Prefetches a cache line for reading, into the first-level cache.
pub(super) const PRFM: Code = mem(0xf980_0000, 3);

// scalar floats
pub(super) const FADD: Code = r3(0x1e20_2800);
pub(super) const FSUB: Code = r3(0x1e20_3800);
pub(super) const FMUL: Code = r3(0x1e20_0800);
pub(super) const FDIV: Code = r3(0x1e20_1800);
/// Gives NaN if either operand is NaN.
pub(super) const FMAX: Code = r3(0x1e20_4800);
pub(super) const FMIN: Code = r3(0x1e20_5800);
/// `d = a + n * m`: `Rd`, `Rn`, `Rm`, `Ra`.
pub(super) const FMADD: Code = r4(0x1f00_0000);
pub(super) const FNEG: Code = r2(0x1e21_4000);
pub(super) const FSQRT: Code = r2(0x1e21_c000);
pub(super) const FRINTZ: Code = r2(0x1e25_c000);
pub(super) const FCMP: Code = code(0x1e20_2000, [5, 16, 0, 0]);
pub(super) const FCSEL: Code = code(0x1e20_0c00, [0, 5, 16, 12]);
pub(super) const FCVT_S_H: Code = r2(0x1ee2_4000);
pub(super) const FCVT_H_S: Code = r2(0x1e23_c000);
pub(super) const FCVT_D_S: Code = r2(0x1e22_c000);
pub(super) const FCVT_S_D: Code = r2(0x1e62_4000);
/// Moves bits to a general register and back; [`full`] and [`double`] together give the 64-bit form.
pub(super) const FMOV_W_S: Code = r2(0x1e26_0000);
pub(super) const FMOV_S_W: Code = r2(0x1e27_0000);
/// Converts between general registers and floats; either may be of either size.
pub(super) const SCVTF: Code = r2(0x1e22_0000);
pub(super) const UCVTF: Code = r2(0x1e23_0000);
/// Converts a float to an integer: truncates, saturates, and gives 0 for NaN.
pub(super) const FCVTZS: Code = r2(0x1e38_0000);
pub(super) const FCVTZU: Code = r2(0x1e39_0000);

// four lanes of 32 bits
pub(super) const ZIP1: Code = r3(0x4e80_3800);
pub(super) const ZIP2: Code = r3(0x4e80_7800);
pub(super) const FADD_V: Code = r3(0x4e20_d400);
pub(super) const FSUB_V: Code = r3(0x4ea0_d400);
pub(super) const FMUL_V: Code = r3(0x6e20_dc00);
pub(super) const FDIV_V: Code = r3(0x6e20_fc00);
pub(super) const FMAX_V: Code = r3(0x4e20_f400);
pub(super) const FMIN_V: Code = r3(0x4ea0_f400);
/// `d += n * m`.
pub(super) const FMLA_V: Code = r3(0x4e20_cc00);
pub(super) const FSQRT_V: Code = r2(0x6ea1_f800);
pub(super) const FNEG_V: Code = r2(0x6ea0_f800);
pub(super) const FRINTZ_V: Code = r2(0x4ea1_9800);
pub(super) const FCMEQ_V: Code = r3(0x4e20_e400);
pub(super) const FCMGT_V: Code = r3(0x6ea0_e400);
pub(super) const SCVTF_V: Code = r2(0x4e21_d800);
pub(super) const UCVTF_V: Code = r2(0x6e21_d800);
pub(super) const FCVTZS_V: Code = r2(0x4ea1_b800);
pub(super) const FCVTZU_V: Code = r2(0x6ea1_b800);
/// Converts four f32 to four f16 in the lower half, and back.
pub(super) const FCVTN: Code = r2(0x0e21_6800);
pub(super) const FCVTL: Code = r2(0x0e21_7800);
pub(super) const ADD_V: Code = r3(0x4ea0_8400);
pub(super) const SUB_V: Code = r3(0x6ea0_8400);
pub(super) const MUL_V: Code = r3(0x4ea0_9c00);
pub(super) const SMAX_V: Code = r3(0x4ea0_6400);
pub(super) const SMIN_V: Code = r3(0x4ea0_6c00);
pub(super) const UMAX_V: Code = r3(0x6ea0_6400);
pub(super) const UMIN_V: Code = r3(0x6ea0_6c00);
pub(super) const AND_V: Code = r3(0x4e20_1c00);
pub(super) const ORR_V: Code = r3(0x4ea0_1c00);
pub(super) const EOR_V: Code = r3(0x6e20_1c00);
/// The bytes of `n` that the bytes of `m` choose.
pub(super) const TBL_V: Code = r3(0x4e00_0000);
/// `d = n & !m`.
pub(super) const BIC_V: Code = r3(0x4e60_1c00);
/// `d = d ? n : m` for each bit.
pub(super) const BSL_V: Code = r3(0x6e60_1c00);
pub(super) const CMEQ_V: Code = r3(0x6ea0_8c00);
pub(super) const CMGT_V: Code = r3(0x4ea0_3400);
pub(super) const CMHI_V: Code = r3(0x6ea0_3400);
/// All ones in lanes where the two operands have a set bit in common.
pub(super) const CMTST_V: Code = r3(0x4ea0_8c00);
pub(super) const NOT_V: Code = r2(0x6e20_5800);
pub(super) const NEG_V: Code = r2(0x6ea0_b800);
/// Byte dot product: `d += n * m`, where the four products of the bytes of a 32-bit lane are added to that lane.
pub(super) const SDOT: Code = r3(0x4e80_9400);
pub(super) const UDOT: Code = r3(0x6e80_9400);
/// Shifts each lane by its own count: left, or right if the count is negative.
pub(super) const SSHL_V: Code = r3(0x4ea0_4400);
pub(super) const USHL_V: Code = r3(0x6ea0_4400);
/// Shifts by an immediate n. The operand encodes it as 32 + n for a left shift and as 64 - n for a right shift.
pub(super) const SHL_V: Code = imm(0x4f00_5400, 16);
pub(super) const SSHR_V: Code = imm(0x4f00_0400, 16);
pub(super) const USHR_V: Code = imm(0x6f00_0400, 16);
/// Extends the lanes of the lower half to twice their width.
pub(super) const UXTL_8: Code = r2(0x2f08_a400);
pub(super) const UXTL_16: Code = r2(0x2f10_a400);
pub(super) const SXTL_8: Code = r2(0x0f08_a400);
pub(super) const SXTL_16: Code = r2(0x0f10_a400);
/// Extends lanes of 16 bits to 32 bits and shifts them left by 16.
pub(super) const SHLL_16: Code = r2(0x2e61_3800);
/// Narrows lanes to half their width, in the lower half.
pub(super) const XTN_16: Code = r2(0x0e61_2800);
pub(super) const XTN_8: Code = r2(0x0e21_2800);
/// Broadcasts a general register to all lanes.
pub(super) const DUP_W: Code = r2(0x4e04_0c00);
/// Broadcasts the first lane.
pub(super) const DUP_S: Code = r2(0x4e04_0400);
/// Extracts a lane as a scalar; [`lane`] encodes the operand.
pub(super) const DUP_LANE: Code = imm(0x5e00_0400, 16);
pub(super) const UMOV: Code = imm(0x0e00_3c00, 16);
/// Sets a lane from a general register, or from the first lane of a vector register.
pub(super) const INS_W: Code = imm(0x4e00_1c00, 16);
pub(super) const INS_S: Code = imm(0x6e00_0400, 16);
/// The upper half of the first operand, followed by the lower half of the second.
pub(super) const EXT_HALF: Code = r3(0x6e00_4000);
/// Swaps adjacent lanes.
pub(super) const REV64: Code = r2(0x4ea0_0800);
pub(super) const ZERO_V: Code = code(0x6f00_e400, [0; 4]);

/// Encodes the number of a 32-bit lane as an instruction field.
pub(super) const fn lane(i: usize) -> i32 {
    (i << 3 | 4) as i32
}
