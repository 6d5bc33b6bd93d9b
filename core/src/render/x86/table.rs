//! The iced-x86 opcode of each operation on 4, 8 or 16 lanes of 32 bits: VEX forms up to ymm, EVEX forms for zmm.

use iced_x86::Code;

/// Three-operand vector operations; the last operand may be memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum V3 {
    AddPs,
    SubPs,
    MulPs,
    DivPs,
    MaxPs,
    MinPs,
    Add,
    Sub,
    Mul,
    MaxS,
    MinS,
    MaxU,
    MinU,
    And,
    Or,
    Xor,
    AndNot,
    Shl,
    Shr,
    Sar,
    Fma231,
    Fma213,
    /// The bytes of the first operand that the bytes of the second choose, in each 128 bits.
    ShuffleBytes,
}

/// Two-operand vector operations; the last operand may be memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum V2 {
    Sqrt,
    IntToFloat,
    FloatToInt,
    Load,
    LoadI8,
    LoadU8,
    LoadI16,
    LoadU16,
    LoadF16,
}

/// Three-operand operations on 64-bit lanes; the last operand may be memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum W3 {
    AddPd,
    SubPd,
    MulPd,
    DivPd,
    MaxPd,
    MinPd,
    Fma231,
    Fma213,
    Add,
    Sub,
    /// The product of the low halves.
    MulLow,
    Shl,
    Shr,
}

/// Shifts by an immediate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ShiftImm {
    Shl,
    Shr,
    Sar,
}

macro_rules! by_width {
    ($w:expr, $x:ident, $y:ident, $z:ident) => {
        match $w {
            16 => Code::$z,
            8 => Code::$y,
            _ => Code::$x,
        }
    };
}

#[rustfmt::skip]
pub(super) fn v3(op: V3, w: usize) -> Code {
    match op {
        V3::AddPs => by_width!(w, VEX_Vaddps_xmm_xmm_xmmm128, VEX_Vaddps_ymm_ymm_ymmm256, EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er),
        V3::SubPs => by_width!(w, VEX_Vsubps_xmm_xmm_xmmm128, VEX_Vsubps_ymm_ymm_ymmm256, EVEX_Vsubps_zmm_k1z_zmm_zmmm512b32_er),
        V3::MulPs => by_width!(w, VEX_Vmulps_xmm_xmm_xmmm128, VEX_Vmulps_ymm_ymm_ymmm256, EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er),
        V3::DivPs => by_width!(w, VEX_Vdivps_xmm_xmm_xmmm128, VEX_Vdivps_ymm_ymm_ymmm256, EVEX_Vdivps_zmm_k1z_zmm_zmmm512b32_er),
        V3::MaxPs => by_width!(w, VEX_Vmaxps_xmm_xmm_xmmm128, VEX_Vmaxps_ymm_ymm_ymmm256, EVEX_Vmaxps_zmm_k1z_zmm_zmmm512b32_sae),
        V3::MinPs => by_width!(w, VEX_Vminps_xmm_xmm_xmmm128, VEX_Vminps_ymm_ymm_ymmm256, EVEX_Vminps_zmm_k1z_zmm_zmmm512b32_sae),
        V3::Add => by_width!(w, VEX_Vpaddd_xmm_xmm_xmmm128, VEX_Vpaddd_ymm_ymm_ymmm256, EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32),
        V3::Sub => by_width!(w, VEX_Vpsubd_xmm_xmm_xmmm128, VEX_Vpsubd_ymm_ymm_ymmm256, EVEX_Vpsubd_zmm_k1z_zmm_zmmm512b32),
        V3::Mul => by_width!(w, VEX_Vpmulld_xmm_xmm_xmmm128, VEX_Vpmulld_ymm_ymm_ymmm256, EVEX_Vpmulld_zmm_k1z_zmm_zmmm512b32),
        V3::MaxS => by_width!(w, VEX_Vpmaxsd_xmm_xmm_xmmm128, VEX_Vpmaxsd_ymm_ymm_ymmm256, EVEX_Vpmaxsd_zmm_k1z_zmm_zmmm512b32),
        V3::MinS => by_width!(w, VEX_Vpminsd_xmm_xmm_xmmm128, VEX_Vpminsd_ymm_ymm_ymmm256, EVEX_Vpminsd_zmm_k1z_zmm_zmmm512b32),
        V3::MaxU => by_width!(w, VEX_Vpmaxud_xmm_xmm_xmmm128, VEX_Vpmaxud_ymm_ymm_ymmm256, EVEX_Vpmaxud_zmm_k1z_zmm_zmmm512b32),
        V3::MinU => by_width!(w, VEX_Vpminud_xmm_xmm_xmmm128, VEX_Vpminud_ymm_ymm_ymmm256, EVEX_Vpminud_zmm_k1z_zmm_zmmm512b32),
        V3::And => by_width!(w, VEX_Vpand_xmm_xmm_xmmm128, VEX_Vpand_ymm_ymm_ymmm256, EVEX_Vpandd_zmm_k1z_zmm_zmmm512b32),
        V3::Or => by_width!(w, VEX_Vpor_xmm_xmm_xmmm128, VEX_Vpor_ymm_ymm_ymmm256, EVEX_Vpord_zmm_k1z_zmm_zmmm512b32),
        V3::Xor => by_width!(w, VEX_Vpxor_xmm_xmm_xmmm128, VEX_Vpxor_ymm_ymm_ymmm256, EVEX_Vpxord_zmm_k1z_zmm_zmmm512b32),
        V3::AndNot => by_width!(w, VEX_Vpandn_xmm_xmm_xmmm128, VEX_Vpandn_ymm_ymm_ymmm256, EVEX_Vpandnd_zmm_k1z_zmm_zmmm512b32),
        V3::ShuffleBytes => by_width!(w, VEX_Vpshufb_xmm_xmm_xmmm128, VEX_Vpshufb_ymm_ymm_ymmm256, EVEX_Vpshufb_zmm_k1z_zmm_zmmm512),
        V3::Shl => by_width!(w, VEX_Vpsllvd_xmm_xmm_xmmm128, VEX_Vpsllvd_ymm_ymm_ymmm256, EVEX_Vpsllvd_zmm_k1z_zmm_zmmm512b32),
        V3::Shr => by_width!(w, VEX_Vpsrlvd_xmm_xmm_xmmm128, VEX_Vpsrlvd_ymm_ymm_ymmm256, EVEX_Vpsrlvd_zmm_k1z_zmm_zmmm512b32),
        V3::Sar => by_width!(w, VEX_Vpsravd_xmm_xmm_xmmm128, VEX_Vpsravd_ymm_ymm_ymmm256, EVEX_Vpsravd_zmm_k1z_zmm_zmmm512b32),
        V3::Fma231 => by_width!(w, VEX_Vfmadd231ps_xmm_xmm_xmmm128, VEX_Vfmadd231ps_ymm_ymm_ymmm256, EVEX_Vfmadd231ps_zmm_k1z_zmm_zmmm512b32_er),
        V3::Fma213 => by_width!(w, VEX_Vfmadd213ps_xmm_xmm_xmmm128, VEX_Vfmadd213ps_ymm_ymm_ymmm256, EVEX_Vfmadd213ps_zmm_k1z_zmm_zmmm512b32_er),
    }
}

/// The opcode of an operation on 64-bit lanes, in registers of this many 32-bit words.
#[rustfmt::skip]
pub(super) fn w3(op: W3, words: usize) -> Code {
    match op {
        W3::AddPd => by_width!(words, VEX_Vaddpd_xmm_xmm_xmmm128, VEX_Vaddpd_ymm_ymm_ymmm256, EVEX_Vaddpd_zmm_k1z_zmm_zmmm512b64_er),
        W3::SubPd => by_width!(words, VEX_Vsubpd_xmm_xmm_xmmm128, VEX_Vsubpd_ymm_ymm_ymmm256, EVEX_Vsubpd_zmm_k1z_zmm_zmmm512b64_er),
        W3::MulPd => by_width!(words, VEX_Vmulpd_xmm_xmm_xmmm128, VEX_Vmulpd_ymm_ymm_ymmm256, EVEX_Vmulpd_zmm_k1z_zmm_zmmm512b64_er),
        W3::DivPd => by_width!(words, VEX_Vdivpd_xmm_xmm_xmmm128, VEX_Vdivpd_ymm_ymm_ymmm256, EVEX_Vdivpd_zmm_k1z_zmm_zmmm512b64_er),
        W3::MaxPd => by_width!(words, VEX_Vmaxpd_xmm_xmm_xmmm128, VEX_Vmaxpd_ymm_ymm_ymmm256, EVEX_Vmaxpd_zmm_k1z_zmm_zmmm512b64_sae),
        W3::MinPd => by_width!(words, VEX_Vminpd_xmm_xmm_xmmm128, VEX_Vminpd_ymm_ymm_ymmm256, EVEX_Vminpd_zmm_k1z_zmm_zmmm512b64_sae),
        W3::Fma231 => by_width!(words, VEX_Vfmadd231pd_xmm_xmm_xmmm128, VEX_Vfmadd231pd_ymm_ymm_ymmm256, EVEX_Vfmadd231pd_zmm_k1z_zmm_zmmm512b64_er),
        W3::Fma213 => by_width!(words, VEX_Vfmadd213pd_xmm_xmm_xmmm128, VEX_Vfmadd213pd_ymm_ymm_ymmm256, EVEX_Vfmadd213pd_zmm_k1z_zmm_zmmm512b64_er),
        W3::Add => by_width!(words, VEX_Vpaddq_xmm_xmm_xmmm128, VEX_Vpaddq_ymm_ymm_ymmm256, EVEX_Vpaddq_zmm_k1z_zmm_zmmm512b64),
        W3::Sub => by_width!(words, VEX_Vpsubq_xmm_xmm_xmmm128, VEX_Vpsubq_ymm_ymm_ymmm256, EVEX_Vpsubq_zmm_k1z_zmm_zmmm512b64),
        W3::MulLow => by_width!(words, VEX_Vpmuludq_xmm_xmm_xmmm128, VEX_Vpmuludq_ymm_ymm_ymmm256, EVEX_Vpmuludq_zmm_k1z_zmm_zmmm512b64),
        W3::Shl => by_width!(words, VEX_Vpsllvq_xmm_xmm_xmmm128, VEX_Vpsllvq_ymm_ymm_ymmm256, EVEX_Vpsllvq_zmm_k1z_zmm_zmmm512b64),
        W3::Shr => by_width!(words, VEX_Vpsrlvq_xmm_xmm_xmmm128, VEX_Vpsrlvq_ymm_ymm_ymmm256, EVEX_Vpsrlvq_zmm_k1z_zmm_zmmm512b64),
    }
}

#[rustfmt::skip]
pub(super) fn v2(op: V2, w: usize) -> Code {
    match op {
        V2::Sqrt => by_width!(w, VEX_Vsqrtps_xmm_xmmm128, VEX_Vsqrtps_ymm_ymmm256, EVEX_Vsqrtps_zmm_k1z_zmmm512b32_er),
        V2::IntToFloat => by_width!(w, VEX_Vcvtdq2ps_xmm_xmmm128, VEX_Vcvtdq2ps_ymm_ymmm256, EVEX_Vcvtdq2ps_zmm_k1z_zmmm512b32_er),
        V2::FloatToInt => by_width!(w, VEX_Vcvttps2dq_xmm_xmmm128, VEX_Vcvttps2dq_ymm_ymmm256, EVEX_Vcvttps2dq_zmm_k1z_zmmm512b32_sae),
        V2::Load => by_width!(w, VEX_Vmovups_xmm_xmmm128, VEX_Vmovups_ymm_ymmm256, EVEX_Vmovups_zmm_k1z_zmmm512),
        V2::LoadI8 => by_width!(w, VEX_Vpmovsxbd_xmm_xmmm32, VEX_Vpmovsxbd_ymm_xmmm64, EVEX_Vpmovsxbd_zmm_k1z_xmmm128),
        V2::LoadU8 => by_width!(w, VEX_Vpmovzxbd_xmm_xmmm32, VEX_Vpmovzxbd_ymm_xmmm64, EVEX_Vpmovzxbd_zmm_k1z_xmmm128),
        V2::LoadI16 => by_width!(w, VEX_Vpmovsxwd_xmm_xmmm64, VEX_Vpmovsxwd_ymm_xmmm128, EVEX_Vpmovsxwd_zmm_k1z_ymmm256),
        V2::LoadU16 => by_width!(w, VEX_Vpmovzxwd_xmm_xmmm64, VEX_Vpmovzxwd_ymm_xmmm128, EVEX_Vpmovzxwd_zmm_k1z_ymmm256),
        V2::LoadF16 => by_width!(w, VEX_Vcvtph2ps_xmm_xmmm64, VEX_Vcvtph2ps_ymm_xmmm128, EVEX_Vcvtph2ps_zmm_k1z_ymmm256_sae),
    }
}

#[rustfmt::skip]
pub(super) fn shift_imm(op: ShiftImm, w: usize) -> Code {
    match op {
        ShiftImm::Shl => by_width!(w, VEX_Vpslld_xmm_xmm_imm8, VEX_Vpslld_ymm_ymm_imm8, EVEX_Vpslld_zmm_k1z_zmmm512b32_imm8),
        ShiftImm::Shr => by_width!(w, VEX_Vpsrld_xmm_xmm_imm8, VEX_Vpsrld_ymm_ymm_imm8, EVEX_Vpsrld_zmm_k1z_zmmm512b32_imm8),
        ShiftImm::Sar => by_width!(w, VEX_Vpsrad_xmm_xmm_imm8, VEX_Vpsrad_ymm_ymm_imm8, EVEX_Vpsrad_zmm_k1z_zmmm512b32_imm8),
    }
}

/// The shift of 64-bit lanes by an immediate; there is no arithmetic one.
#[rustfmt::skip]
pub(super) fn wide_shift_imm(left: bool, words: usize) -> Code {
    match left {
        true => by_width!(words, VEX_Vpsllq_xmm_xmm_imm8, VEX_Vpsllq_ymm_ymm_imm8, EVEX_Vpsllq_zmm_k1z_zmmm512b64_imm8),
        false => by_width!(words, VEX_Vpsrlq_xmm_xmm_imm8, VEX_Vpsrlq_ymm_ymm_imm8, EVEX_Vpsrlq_zmm_k1z_zmmm512b64_imm8),
    }
}

#[rustfmt::skip]
pub(super) fn store(w: usize) -> Code {
    by_width!(w, VEX_Vmovups_xmmm128_xmm, VEX_Vmovups_ymmm256_ymm, EVEX_Vmovups_zmmm512_k1z_zmm)
}

/// The non-temporal store of `w` lanes; the address must be aligned to the register's size.
#[rustfmt::skip]
pub(super) fn non_temporal_store(w: usize) -> Code {
    by_width!(w, VEX_Vmovntps_m128_xmm, VEX_Vmovntps_m256_ymm, EVEX_Vmovntps_m512_zmm)
}

/// Is this a non-temporal store?
pub(super) fn is_non_temporal(code: Code) -> bool {
    [4, 8, 16].into_iter().any(|w| non_temporal_store(w) == code)
}

/// Copy of a whole register.
#[rustfmt::skip]
pub(super) fn copy(w: usize) -> Code {
    by_width!(w, VEX_Vmovaps_xmm_xmmm128, VEX_Vmovaps_ymm_ymmm256, EVEX_Vmovaps_zmm_k1z_zmmm512)
}

/// f32 to f16, rounding to nearest even; operand 0 is a register or memory of half the size.
#[rustfmt::skip]
pub(super) fn to_f16(w: usize) -> Code {
    by_width!(w, VEX_Vcvtps2ph_xmmm64_xmm_imm8, VEX_Vcvtps2ph_xmmm128_ymm_imm8, EVEX_Vcvtps2ph_ymmm256_k1z_zmm_imm8_sae)
}

/// Comparison predicates of `vcmpps` and its scalar and f64 forms.
pub(super) mod cmp {
    pub(in super::super) const EQ: u8 = 0x00;
    pub(in super::super) const UNORDERED: u8 = 0x03;
    pub(in super::super) const NE: u8 = 0x04;
    pub(in super::super) const ORDERED: u8 = 0x07;
    pub(in super::super) const LT: u8 = 0x11;
    pub(in super::super) const GE: u8 = 0x1d;
}
