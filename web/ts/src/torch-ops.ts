// Generated from the table of operators: `BLESS=1 cargo test -p gradloom-tests --test it torch_ops`.
import type { DType } from "./dtype.js";
import type { Tensor } from "./tensor.js";

/** Operators by torch's names. */
export interface Torch {
  H(input: Tensor): Tensor;
  T(input: Tensor): Tensor;
  _chunk_cat(tensors: readonly Tensor[], dim: number, num_chunks: number): Tensor;
  _native_batch_norm_legit(
    input: Tensor,
    weight?: Tensor,
    bias?: Tensor,
    running_mean?: unknown,
    running_var?: unknown,
    training?: unknown,
    momentum?: number,
    eps?: number,
  ): [Tensor, Tensor, Tensor];
  _native_batch_norm_legit(
    input: Tensor,
    named: { weight?: Tensor;
      bias?: Tensor;
      running_mean?: unknown;
      running_var?: unknown;
      training?: unknown;
      momentum?: number;
      eps?: number },
  ): [Tensor, Tensor, Tensor];
  _segment_reduce(
    data: Tensor,
    reduce: string,
    lengths?: Tensor,
    indices?: Tensor,
    offsets?: Tensor,
    axis?: number,
    initial?: number,
  ): Tensor;
  _segment_reduce(
    data: Tensor,
    reduce: string,
    named: { lengths?: Tensor; indices?: Tensor; offsets?: Tensor; axis?: number; initial?: number },
  ): Tensor;
  _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: number, input_dtype?: DType): Tensor;
  _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: number, named: { input_dtype?: DType }): Tensor;
  _unsafe_masked_index(input: Tensor, mask: Tensor, indices: unknown, fill: Tensor | number | boolean): Tensor;
  _unsafe_masked_index_put_accumulate(input: Tensor, mask: Tensor, indices: unknown, values: Tensor): Tensor;
  abs(input: Tensor): Tensor;
  absolute(input: Tensor): Tensor;
  acos(input: Tensor): Tensor;
  acosh(input: Tensor): Tensor;
  add(input: Tensor | number | boolean, other: Tensor | number | boolean, alpha?: Tensor | number | boolean): Tensor;
  add(input: Tensor | number | boolean, other: Tensor | number | boolean, named: { alpha?: Tensor | number | boolean }): Tensor;
  addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, beta?: Tensor | number | boolean, alpha?: Tensor | number | boolean): Tensor;
  addbmm(
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    named: { beta?: Tensor | number | boolean; alpha?: Tensor | number | boolean },
  ): Tensor;
  addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, value?: Tensor | number | boolean): Tensor;
  addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, named: { value?: Tensor | number | boolean }): Tensor;
  addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, value?: Tensor | number | boolean): Tensor;
  addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, named: { value?: Tensor | number | boolean }): Tensor;
  addmm(input: Tensor, mat1: Tensor, mat2: Tensor, beta?: Tensor | number | boolean, alpha?: Tensor | number | boolean): Tensor;
  addmm(input: Tensor, mat1: Tensor, mat2: Tensor, named: { beta?: Tensor | number | boolean; alpha?: Tensor | number | boolean }): Tensor;
  addmv(input: Tensor, mat1: Tensor, mat2: Tensor, beta?: Tensor | number | boolean, alpha?: Tensor | number | boolean): Tensor;
  addmv(input: Tensor, mat1: Tensor, mat2: Tensor, named: { beta?: Tensor | number | boolean; alpha?: Tensor | number | boolean }): Tensor;
  addr(input: Tensor, vec1: Tensor, vec2: Tensor, beta?: Tensor | number | boolean, alpha?: Tensor | number | boolean): Tensor;
  addr(input: Tensor, vec1: Tensor, vec2: Tensor, named: { beta?: Tensor | number | boolean; alpha?: Tensor | number | boolean }): Tensor;
  alias_copy(input: Tensor): Tensor;
  all(input: Tensor, dim?: number | readonly number[], keepdim?: boolean): Tensor;
  all(input: Tensor, named: { dim?: number | readonly number[]; keepdim?: boolean }): Tensor;
  allclose(input: Tensor, other: Tensor, rtol?: number, atol?: number): Tensor;
  allclose(input: Tensor, other: Tensor, named: { rtol?: number; atol?: number }): Tensor;
  amax(input: Tensor, dim?: number | readonly number[], keepdim?: boolean): Tensor;
  amax(input: Tensor, named: { dim?: number | readonly number[]; keepdim?: boolean }): Tensor;
  amin(input: Tensor, dim?: number | readonly number[], keepdim?: boolean): Tensor;
  amin(input: Tensor, named: { dim?: number | readonly number[]; keepdim?: boolean }): Tensor;
  aminmax(input: Tensor, dim?: number | readonly number[], keepdim?: boolean): [Tensor, Tensor];
  aminmax(input: Tensor, named: { dim?: number | readonly number[]; keepdim?: boolean }): [Tensor, Tensor];
  angle(input: Tensor): Tensor;
  any(input: Tensor, dim?: number | readonly number[], keepdim?: boolean): Tensor;
  any(input: Tensor, named: { dim?: number | readonly number[]; keepdim?: boolean }): Tensor;
  arange(start: Tensor | number | boolean, end?: Tensor | number | boolean, step?: Tensor | number | boolean, dtype?: DType): Tensor;
  arange(
    start: Tensor | number | boolean,
    named: { end?: Tensor | number | boolean; step?: Tensor | number | boolean; dtype?: DType },
  ): Tensor;
  arccos(input: Tensor): Tensor;
  arccosh(input: Tensor): Tensor;
  arcsin(input: Tensor): Tensor;
  arcsinh(input: Tensor): Tensor;
  arctan(input: Tensor): Tensor;
  arctan2(input: Tensor, other: Tensor): Tensor;
  arctanh(input: Tensor): Tensor;
  argmax(input: Tensor, dim?: number, keepdim?: boolean): Tensor;
  argmax(input: Tensor, named: { dim?: number; keepdim?: boolean }): Tensor;
  argmin(input: Tensor, dim?: number, keepdim?: boolean): Tensor;
  argmin(input: Tensor, named: { dim?: number; keepdim?: boolean }): Tensor;
  argsort(input: Tensor, dim?: number, descending?: boolean, stable?: boolean): Tensor;
  argsort(input: Tensor, named: { dim?: number; descending?: boolean; stable?: boolean }): Tensor;
  argwhere(input: Tensor): [Tensor, Tensor];
  asin(input: Tensor): Tensor;
  asinh(input: Tensor): Tensor;
  atan(input: Tensor): Tensor;
  atan2(input: Tensor, other: Tensor): Tensor;
  atanh(input: Tensor): Tensor;
  atleast_1d(tensors: readonly Tensor[]): Tensor[];
  atleast_2d(tensors: readonly Tensor[]): Tensor[];
  atleast_3d(tensors: readonly Tensor[]): Tensor[];
  baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, beta?: Tensor | number | boolean, alpha?: Tensor | number | boolean): Tensor;
  baddbmm(
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    named: { beta?: Tensor | number | boolean; alpha?: Tensor | number | boolean },
  ): Tensor;
  bfloat16(input: Tensor): Tensor;
  bincount(input: Tensor, weights?: Tensor, minlength?: number): Tensor;
  bincount(input: Tensor, named: { weights?: Tensor; minlength?: number }): Tensor;
  bitwise_and(input: Tensor | number | boolean, other: Tensor | number | boolean): Tensor;
  bitwise_left_shift(input: Tensor | number | boolean, other: Tensor | number | boolean): Tensor;
  bitwise_not(input: Tensor): Tensor;
  bitwise_or(input: Tensor | number | boolean, other: Tensor | number | boolean): Tensor;
  bitwise_right_shift(input: Tensor | number | boolean, other: Tensor | number | boolean): Tensor;
  bitwise_xor(input: Tensor | number | boolean, other: Tensor | number | boolean): Tensor;
  block_diag(tensors: readonly Tensor[]): Tensor;
  bmm(input: Tensor, other: Tensor): Tensor;
  bool(input: Tensor): Tensor;
  broadcast_tensors(tensors: readonly Tensor[]): Tensor[];
  broadcast_to(input: Tensor, size: number | readonly number[]): Tensor;
  bucketize(input: Tensor | number | boolean, boundaries: Tensor, right?: boolean): Tensor;
  bucketize(input: Tensor | number | boolean, boundaries: Tensor, named: { right?: boolean }): Tensor;
  byte(input: Tensor): Tensor;
  cartesian_prod(tensors: readonly Tensor[]): Tensor;
  cat(tensors: readonly Tensor[], dim?: number): Tensor;
  cat(tensors: readonly Tensor[], named: { dim?: number }): Tensor;
  cauchy(input: Tensor, median?: number, sigma?: number): Tensor;
  cauchy(input: Tensor, named: { median?: number; sigma?: number }): Tensor;
  cdist(x1: Tensor, x2: Tensor, p?: number, compute_mode?: string): Tensor;
  cdist(x1: Tensor, x2: Tensor, named: { p?: number; compute_mode?: string }): Tensor;
  ceil(input: Tensor): Tensor;
  celu(input: Tensor, alpha?: number, inplace?: boolean): Tensor;
  celu(input: Tensor, named: { alpha?: number; inplace?: boolean }): Tensor;
  char(input: Tensor): Tensor;
  cholesky(input: Tensor, upper?: boolean): Tensor;
  cholesky(input: Tensor, named: { upper?: boolean }): Tensor;
  cholesky_inverse(L: Tensor, upper?: boolean): Tensor;
  cholesky_inverse(L: Tensor, named: { upper?: boolean }): Tensor;
  cholesky_solve(b: Tensor, L: Tensor, upper?: boolean): Tensor;
  cholesky_solve(b: Tensor, L: Tensor, named: { upper?: boolean }): Tensor;
  chunk(input: Tensor, chunks: number, dim?: number): Tensor[];
  chunk(input: Tensor, chunks: number, named: { dim?: number }): Tensor[];
  clamp(input: Tensor, min?: Tensor | number | boolean, max?: Tensor | number | boolean): Tensor;
  clamp(input: Tensor, named: { min?: Tensor | number | boolean; max?: Tensor | number | boolean }): Tensor;
  clamp_max(input: Tensor, max: Tensor | number | boolean): Tensor;
  clamp_min(input: Tensor, min: Tensor | number | boolean): Tensor;
  clip(input: Tensor, min?: Tensor | number | boolean, max?: Tensor | number | boolean): Tensor;
  clip(input: Tensor, named: { min?: Tensor | number | boolean; max?: Tensor | number | boolean }): Tensor;
  clone(input: Tensor): Tensor;
  column_stack(tensors: readonly Tensor[]): Tensor;
  combinations(input: Tensor, r?: number, with_replacement?: boolean): Tensor;
  combinations(input: Tensor, named: { r?: number; with_replacement?: boolean }): Tensor;
  concat(tensors: readonly Tensor[], dim?: number): Tensor;
  concat(tensors: readonly Tensor[], named: { dim?: number }): Tensor;
  concatenate(tensors: readonly Tensor[], dim?: number): Tensor;
  concatenate(tensors: readonly Tensor[], named: { dim?: number }): Tensor;
  conj(input: Tensor): Tensor;
  conj_physical(input: Tensor): Tensor;
  constant_pad_nd(input: Tensor, pad: number | readonly number[], value?: Tensor | number | boolean): Tensor;
  constant_pad_nd(input: Tensor, pad: number | readonly number[], named: { value?: Tensor | number | boolean }): Tensor;
  contiguous(input: Tensor): Tensor;
  copysign(input: Tensor, other: Tensor | number | boolean): Tensor;
  corrcoef(input: Tensor): Tensor;
  cos(input: Tensor): Tensor;
  cosh(input: Tensor): Tensor;
  count_nonzero(input: Tensor, dim?: number | readonly number[]): Tensor;
  count_nonzero(input: Tensor, named: { dim?: number | readonly number[] }): Tensor;
  cov(input: Tensor, correction?: number, fweights?: Tensor, aweights?: Tensor): Tensor;
  cov(input: Tensor, named: { correction?: number; fweights?: Tensor; aweights?: Tensor }): Tensor;
  cross(input: Tensor, other: Tensor, dim?: number): Tensor;
  cross(input: Tensor, other: Tensor, named: { dim?: number }): Tensor;
  cummax(input: Tensor, dim: number): [Tensor, Tensor];
  cummin(input: Tensor, dim: number): [Tensor, Tensor];
  cumprod(input: Tensor, dim: number, dtype?: DType): Tensor;
  cumprod(input: Tensor, dim: number, named: { dtype?: DType }): Tensor;
  cumsum(input: Tensor, dim: number, dtype?: DType): Tensor;
  cumsum(input: Tensor, dim: number, named: { dtype?: DType }): Tensor;
  cumulative_trapezoid(y: Tensor, x?: Tensor, dx?: number, dim?: number): Tensor;
  cumulative_trapezoid(y: Tensor, named: { x?: Tensor; dx?: number; dim?: number }): Tensor;
  deg2rad(input: Tensor): Tensor;
  det(input: Tensor): Tensor;
  diag(input: Tensor, diagonal?: number): Tensor;
  diag(input: Tensor, named: { diagonal?: number }): Tensor;
  diag_embed(input: Tensor, offset?: number, dim1?: number, dim2?: number): Tensor;
  diag_embed(input: Tensor, named: { offset?: number; dim1?: number; dim2?: number }): Tensor;
  diagflat(input: Tensor, offset?: number): Tensor;
  diagflat(input: Tensor, named: { offset?: number }): Tensor;
  diagonal(input: Tensor, offset?: number, dim1?: number, dim2?: number): Tensor;
  diagonal(input: Tensor, named: { offset?: number; dim1?: number; dim2?: number }): Tensor;
  diagonal_copy(input: Tensor, offset?: number, dim1?: number, dim2?: number): Tensor;
  diagonal_copy(input: Tensor, named: { offset?: number; dim1?: number; dim2?: number }): Tensor;
  diagonal_scatter(input: Tensor, src: Tensor, offset?: number, dim1?: number, dim2?: number): Tensor;
  diagonal_scatter(input: Tensor, src: Tensor, named: { offset?: number; dim1?: number; dim2?: number }): Tensor;
  diff(input: Tensor, n?: number, dim?: number, prepend?: Tensor, append?: Tensor): Tensor;
  diff(input: Tensor, named: { n?: number; dim?: number; prepend?: Tensor; append?: Tensor }): Tensor;
  digamma(input: Tensor): Tensor;
  dist(input: Tensor, other: Tensor, p?: number): Tensor;
  dist(input: Tensor, other: Tensor, named: { p?: number }): Tensor;
  div(input: Tensor | number | boolean, other: Tensor | number | boolean, rounding_mode?: string): Tensor;
  div(input: Tensor | number | boolean, other: Tensor | number | boolean, named: { rounding_mode?: string }): Tensor;
  divide(input: Tensor | number | boolean, other: Tensor | number | boolean, rounding_mode?: string): Tensor;
  divide(input: Tensor | number | boolean, other: Tensor | number | boolean, named: { rounding_mode?: string }): Tensor;
  dot(input: Tensor, other: Tensor): Tensor;
  double(input: Tensor): Tensor;
  dsplit(input: Tensor, indices_or_sections: unknown): Tensor[];
  dstack(tensors: readonly Tensor[]): Tensor;
  einsum(operands: readonly Tensor[], equation: string): Tensor;
  eq(input: Tensor, other: Tensor | number | boolean): Tensor;
  erf(input: Tensor): Tensor;
  erfc(input: Tensor): Tensor;
  erfinv(input: Tensor): Tensor;
  exp(input: Tensor): Tensor;
  exp2(input: Tensor): Tensor;
  expand(input: Tensor, size: number | readonly number[]): Tensor;
  expand_as(input: Tensor, other: Tensor): Tensor;
  expand_copy(input: Tensor, size: number | readonly number[]): Tensor;
  expm1(input: Tensor): Tensor;
  eye(n: number, m?: number, dtype?: DType): Tensor;
  eye(n: number, named: { m?: number; dtype?: DType }): Tensor;
  fill(input: Tensor, value: Tensor | number | boolean): Tensor;
  fix(input: Tensor): Tensor;
  flatten(input: Tensor, start_dim?: number, end_dim?: number): Tensor;
  flatten(input: Tensor, named: { start_dim?: number; end_dim?: number }): Tensor;
  flip(input: Tensor, dims: number | readonly number[]): Tensor;
  fliplr(input: Tensor): Tensor;
  flipud(input: Tensor): Tensor;
  float(input: Tensor): Tensor;
  float_power(input: Tensor | number | boolean, exponent: Tensor | number | boolean): Tensor;
  floor(input: Tensor): Tensor;
  floor_divide(input: Tensor | number | boolean, other: Tensor | number | boolean): Tensor;
  fmax(input: Tensor, other: Tensor): Tensor;
  fmin(input: Tensor, other: Tensor): Tensor;
  fmod(input: Tensor | number | boolean, other: Tensor | number | boolean): Tensor;
  frac(input: Tensor): Tensor;
  frexp(input: Tensor): [Tensor, Tensor];
  full(size: number | readonly number[], fill_value: Tensor | number | boolean, dtype?: DType): Tensor;
  full(size: number | readonly number[], fill_value: Tensor | number | boolean, named: { dtype?: DType }): Tensor;
  full_like(input: Tensor, fill_value: Tensor | number | boolean, dtype?: DType): Tensor;
  full_like(input: Tensor, fill_value: Tensor | number | boolean, named: { dtype?: DType }): Tensor;
  gather(input: Tensor, dim: number, index: Tensor): Tensor;
  gather_nd(input: Tensor, indices: Tensor, batch_dims?: number): Tensor;
  gather_nd(input: Tensor, indices: Tensor, named: { batch_dims?: number }): Tensor;
  gcd(input: Tensor, other: Tensor): Tensor;
  ge(input: Tensor, other: Tensor | number | boolean): Tensor;
  geometric(input: Tensor, p: number): Tensor;
  ger(input: Tensor, vec2: Tensor): Tensor;
  gradient(input: Tensor, spacing?: unknown, dim?: number | readonly number[], edge_order?: number): Tensor[];
  gradient(input: Tensor, named: { spacing?: unknown; dim?: number | readonly number[]; edge_order?: number }): Tensor[];
  grid_sampler_2d(input: Tensor, grid: Tensor, interpolation_mode: number, padding_mode: number, align_corners: boolean): Tensor;
  grid_sampler_3d(input: Tensor, grid: Tensor, interpolation_mode: number, padding_mode: number, align_corners: boolean): Tensor;
  gt(input: Tensor, other: Tensor | number | boolean): Tensor;
  half(input: Tensor): Tensor;
  heaviside(input: Tensor, values: Tensor): Tensor;
  histc(input: Tensor, bins?: number, min?: number, max?: number): Tensor;
  histc(input: Tensor, named: { bins?: number; min?: number; max?: number }): Tensor;
  histogram(input: Tensor, bins: unknown, range?: number | readonly number[], weight?: Tensor, density?: boolean): [Tensor, Tensor];
  histogram(
    input: Tensor,
    bins: unknown,
    named: { range?: number | readonly number[]; weight?: Tensor; density?: boolean },
  ): [Tensor, Tensor];
  hsplit(input: Tensor, indices_or_sections: unknown): Tensor[];
  hstack(tensors: readonly Tensor[]): Tensor;
  hypot(input: Tensor, other: Tensor): Tensor;
  i0(input: Tensor): Tensor;
  igamma(input: Tensor, other: Tensor): Tensor;
  igammac(input: Tensor, other: Tensor): Tensor;
  index_add(input: Tensor, dim: number, index: Tensor, source: Tensor, alpha?: Tensor | number | boolean): Tensor;
  index_add(input: Tensor, dim: number, index: Tensor, source: Tensor, named: { alpha?: Tensor | number | boolean }): Tensor;
  index_copy(input: Tensor, dim: number, index: Tensor, source: Tensor): Tensor;
  index_fill(input: Tensor, dim: number, index: Tensor, value: Tensor | number | boolean): Tensor;
  index_put(input: Tensor, indices: unknown, values: Tensor, accumulate?: boolean): Tensor;
  index_put(input: Tensor, indices: unknown, values: Tensor, named: { accumulate?: boolean }): Tensor;
  index_reduce(input: Tensor, dim: number, index: Tensor, source: Tensor, reduce: string, include_self?: boolean): Tensor;
  index_reduce(input: Tensor, dim: number, index: Tensor, source: Tensor, reduce: string, named: { include_self?: boolean }): Tensor;
  index_select(input: Tensor, dim: number, index: Tensor): Tensor;
  inner(input: Tensor, other: Tensor): Tensor;
  int(input: Tensor): Tensor;
  inverse(input: Tensor): Tensor;
  isclose(input: Tensor, other: Tensor, rtol?: number, atol?: number, equal_nan?: boolean): Tensor;
  isclose(input: Tensor, other: Tensor, named: { rtol?: number; atol?: number; equal_nan?: boolean }): Tensor;
  isfinite(input: Tensor): Tensor;
  isin(elements: Tensor | number | boolean, test_elements: Tensor | number | boolean, assume_unique?: boolean, invert?: boolean): Tensor;
  isin(
    elements: Tensor | number | boolean,
    test_elements: Tensor | number | boolean,
    named: { assume_unique?: boolean; invert?: boolean },
  ): Tensor;
  isinf(input: Tensor): Tensor;
  isnan(input: Tensor): Tensor;
  isneginf(input: Tensor): Tensor;
  isposinf(input: Tensor): Tensor;
  isreal(input: Tensor): Tensor;
  istft(
    input: Tensor,
    n_fft: number,
    hop_length?: number,
    win_length?: number,
    window?: Tensor,
    center?: boolean,
    normalized?: boolean,
    onesided?: boolean,
    length?: number,
  ): Tensor;
  istft(
    input: Tensor,
    n_fft: number,
    named: { hop_length?: number;
      win_length?: number;
      window?: Tensor;
      center?: boolean;
      normalized?: boolean;
      onesided?: boolean;
      length?: number },
  ): Tensor;
  kron(input: Tensor, other: Tensor): Tensor;
  kthvalue(input: Tensor, k: number, dim?: number, keepdim?: boolean): [Tensor, Tensor];
  kthvalue(input: Tensor, k: number, named: { dim?: number; keepdim?: boolean }): [Tensor, Tensor];
  lcm(input: Tensor, other: Tensor): Tensor;
  ldexp(input: Tensor, other: Tensor): Tensor;
  le(input: Tensor, other: Tensor | number | boolean): Tensor;
  lerp(input: Tensor, end: Tensor, weight: Tensor | number | boolean): Tensor;
  lgamma(input: Tensor): Tensor;
  linspace(start: Tensor | number | boolean, end: Tensor | number | boolean, steps: number, dtype?: DType): Tensor;
  linspace(start: Tensor | number | boolean, end: Tensor | number | boolean, steps: number, named: { dtype?: DType }): Tensor;
  log(input: Tensor): Tensor;
  log10(input: Tensor): Tensor;
  log1p(input: Tensor): Tensor;
  log2(input: Tensor): Tensor;
  log_normal(input: Tensor, mean?: number, std?: number): Tensor;
  log_normal(input: Tensor, named: { mean?: number; std?: number }): Tensor;
  log_softmax(input: Tensor, dim: number, dtype?: DType): Tensor;
  log_softmax(input: Tensor, dim: number, named: { dtype?: DType }): Tensor;
  logaddexp(input: Tensor, other: Tensor): Tensor;
  logaddexp2(input: Tensor, other: Tensor): Tensor;
  logcumsumexp(input: Tensor, dim: number): Tensor;
  logdet(input: Tensor): Tensor;
  logical_and(input: Tensor, other: Tensor | number | boolean): Tensor;
  logical_not(input: Tensor): Tensor;
  logical_or(input: Tensor, other: Tensor | number | boolean): Tensor;
  logical_xor(input: Tensor, other: Tensor | number | boolean): Tensor;
  logit(input: Tensor, eps?: number): Tensor;
  logit(input: Tensor, named: { eps?: number }): Tensor;
  logspace(start: Tensor | number | boolean, end: Tensor | number | boolean, steps: number, base?: number, dtype?: DType): Tensor;
  logspace(
    start: Tensor | number | boolean,
    end: Tensor | number | boolean,
    steps: number,
    named: { base?: number; dtype?: DType },
  ): Tensor;
  logsumexp(input: Tensor, dim?: number | readonly number[], keepdim?: boolean): Tensor;
  logsumexp(input: Tensor, named: { dim?: number | readonly number[]; keepdim?: boolean }): Tensor;
  long(input: Tensor): Tensor;
  lt(input: Tensor, other: Tensor | number | boolean): Tensor;
  lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor): Tensor;
  lu_unpack(LU_data: Tensor, LU_pivots: Tensor): [Tensor, Tensor, Tensor];
  mH(input: Tensor): Tensor;
  mT(input: Tensor): Tensor;
  masked_fill(input: Tensor, mask: Tensor, value: Tensor | number | boolean): Tensor;
  masked_scatter(input: Tensor, mask: Tensor, source: Tensor): Tensor;
  masked_select(input: Tensor, mask: Tensor): [Tensor, Tensor];
  matmul(input: Tensor, other: Tensor): Tensor;
  matrix_exp(input: Tensor): Tensor;
  matrix_power(input: Tensor, n: number): Tensor;
  max(input: Tensor, dim?: unknown, keepdim?: boolean): Tensor[];
  max(input: Tensor, named: { dim?: unknown; keepdim?: boolean }): Tensor[];
  max_pool2d_with_indices_backward(
    grad_output: Tensor,
    input: Tensor,
    kernel_size: number | readonly number[],
    stride: number | readonly number[] | null,
    padding: number | readonly number[],
    dilation: number | readonly number[],
    ceil_mode: boolean,
    indices: Tensor,
  ): Tensor;
  maximum(input: Tensor, other: Tensor | number | boolean): Tensor;
  mean(input: Tensor, dim?: number | readonly number[], keepdim?: boolean, dtype?: DType): Tensor;
  mean(input: Tensor, named: { dim?: number | readonly number[]; keepdim?: boolean; dtype?: DType }): Tensor;
  median(input: Tensor, dim?: number, keepdim?: boolean): Tensor[];
  median(input: Tensor, named: { dim?: number; keepdim?: boolean }): Tensor[];
  meshgrid(tensors: readonly Tensor[], indexing?: string): Tensor[];
  meshgrid(tensors: readonly Tensor[], named: { indexing?: string }): Tensor[];
  min(input: Tensor, dim?: unknown, keepdim?: boolean): Tensor[];
  min(input: Tensor, named: { dim?: unknown; keepdim?: boolean }): Tensor[];
  minimum(input: Tensor, other: Tensor | number | boolean): Tensor;
  mm(input: Tensor, other: Tensor): Tensor;
  mode(input: Tensor, dim?: number, keepdim?: boolean): [Tensor, Tensor];
  mode(input: Tensor, named: { dim?: number; keepdim?: boolean }): [Tensor, Tensor];
  moveaxis(input: Tensor, source: number | readonly number[], destination: number | readonly number[]): Tensor;
  movedim(input: Tensor, source: number | readonly number[], destination: number | readonly number[]): Tensor;
  msort(input: Tensor): Tensor;
  mul(input: Tensor | number | boolean, other: Tensor | number | boolean): Tensor;
  multiply(input: Tensor | number | boolean, other: Tensor | number | boolean): Tensor;
  mv(input: Tensor, other: Tensor): Tensor;
  mvlgamma(input: Tensor, p: number): Tensor;
  nan_to_num(input: Tensor, nan?: number, posinf?: number, neginf?: number): Tensor;
  nan_to_num(input: Tensor, named: { nan?: number; posinf?: number; neginf?: number }): Tensor;
  nanmean(input: Tensor, dim?: number | readonly number[], keepdim?: boolean, dtype?: DType): Tensor;
  nanmean(input: Tensor, named: { dim?: number | readonly number[]; keepdim?: boolean; dtype?: DType }): Tensor;
  nanmedian(input: Tensor, dim?: number, keepdim?: boolean): Tensor[];
  nanmedian(input: Tensor, named: { dim?: number; keepdim?: boolean }): Tensor[];
  nanquantile(input: Tensor, q: Tensor | number | boolean, dim?: number, keepdim?: boolean, interpolation?: string): Tensor;
  nanquantile(input: Tensor, q: Tensor | number | boolean, named: { dim?: number; keepdim?: boolean; interpolation?: string }): Tensor;
  nansum(input: Tensor, dim?: number | readonly number[], keepdim?: boolean, dtype?: DType): Tensor;
  nansum(input: Tensor, named: { dim?: number | readonly number[]; keepdim?: boolean; dtype?: DType }): Tensor;
  narrow(input: Tensor, dim: number, start: unknown, length: number): Tensor;
  narrow_copy(input: Tensor, dim: number, start: unknown, length: number): Tensor;
  native_batch_norm(
    input: Tensor,
    weight: Tensor | null,
    bias: Tensor | null,
    running_mean: Tensor | null,
    running_var: Tensor | null,
    training: boolean,
    momentum: number,
    eps: number,
  ): [Tensor, Tensor, Tensor];
  native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: number): Tensor;
  native_group_norm(
    input: Tensor,
    weight: Tensor | null,
    bias: Tensor | null,
    N: number,
    C: number,
    HxW: number,
    group: number,
    eps: number,
  ): [Tensor, Tensor, Tensor];
  native_layer_norm(
    input: Tensor,
    normalized_shape: number | readonly number[],
    weight: Tensor | null,
    bias: Tensor | null,
    eps: number,
  ): [Tensor, Tensor, Tensor];
  ne(input: Tensor, other: Tensor | number | boolean): Tensor;
  neg(input: Tensor): Tensor;
  negative(input: Tensor): Tensor;
  new_full(input: Tensor, size: number | readonly number[], fill_value: Tensor | number | boolean, dtype?: DType): Tensor;
  new_full(input: Tensor, size: number | readonly number[], fill_value: Tensor | number | boolean, named: { dtype?: DType }): Tensor;
  new_ones(input: Tensor, size: number | readonly number[], dtype?: DType): Tensor;
  new_ones(input: Tensor, size: number | readonly number[], named: { dtype?: DType }): Tensor;
  new_zeros(input: Tensor, size: number | readonly number[], dtype?: DType): Tensor;
  new_zeros(input: Tensor, size: number | readonly number[], named: { dtype?: DType }): Tensor;
  nextafter(input: Tensor, other: Tensor): Tensor;
  nonzero(input: Tensor): [Tensor, Tensor];
  nonzero_static(input: Tensor, size: number, fill_value?: number): Tensor;
  nonzero_static(input: Tensor, size: number, named: { fill_value?: number }): Tensor;
  norm(input: Tensor, p?: unknown, dim?: number | readonly number[], keepdim?: boolean, dtype?: DType): Tensor;
  norm(input: Tensor, named: { p?: unknown; dim?: number | readonly number[]; keepdim?: boolean; dtype?: DType }): Tensor;
  normal(mean: Tensor | number | boolean, std: Tensor | number | boolean, size?: number | readonly number[]): Tensor;
  normal(mean: Tensor | number | boolean, std: Tensor | number | boolean, named: { size?: number | readonly number[] }): Tensor;
  ones(size: number | readonly number[], dtype?: DType): Tensor;
  ones(size: number | readonly number[], named: { dtype?: DType }): Tensor;
  ones_like(input: Tensor, dtype?: DType): Tensor;
  ones_like(input: Tensor, named: { dtype?: DType }): Tensor;
  outer(input: Tensor, vec2: Tensor): Tensor;
  pad_to(input: Tensor, size: number | readonly number[]): Tensor;
  permute(input: Tensor, dims: number | readonly number[]): Tensor;
  permute_copy(input: Tensor, dims: number | readonly number[]): Tensor;
  pinverse(input: Tensor, rcond?: number): Tensor;
  pinverse(input: Tensor, named: { rcond?: number }): Tensor;
  polygamma(input: Tensor, n: number): Tensor;
  positive(input: Tensor): Tensor;
  pow(input: Tensor | number | boolean, exponent: Tensor | number | boolean): Tensor;
  prelu(input: Tensor, weight: Tensor): Tensor;
  prod(input: Tensor, dim?: number | readonly number[], keepdim?: boolean, dtype?: DType): Tensor;
  prod(input: Tensor, named: { dim?: number | readonly number[]; keepdim?: boolean; dtype?: DType }): Tensor;
  put(input: Tensor, index: Tensor, source: Tensor, accumulate?: boolean): Tensor;
  put(input: Tensor, index: Tensor, source: Tensor, named: { accumulate?: boolean }): Tensor;
  qr(input: Tensor, mode?: string): [Tensor, Tensor];
  qr(input: Tensor, named: { mode?: string }): [Tensor, Tensor];
  quantile(input: Tensor, q: Tensor | number | boolean, dim?: number, keepdim?: boolean, interpolation?: string): Tensor;
  quantile(input: Tensor, q: Tensor | number | boolean, named: { dim?: number; keepdim?: boolean; interpolation?: string }): Tensor;
  quick_gelu(input: Tensor): Tensor;
  rad2deg(input: Tensor): Tensor;
  rand_like(input: Tensor): Tensor;
  randn_like(input: Tensor): Tensor;
  ravel(input: Tensor): Tensor;
  real(input: Tensor): Tensor;
  rearrange(input: Tensor, pattern: string, axes?: string, lengths?: number | readonly number[]): Tensor;
  rearrange(input: Tensor, pattern: string, named: { axes?: string; lengths?: number | readonly number[] }): Tensor;
  reciprocal(input: Tensor): Tensor;
  relu(input: Tensor, inplace?: boolean): Tensor;
  relu(input: Tensor, named: { inplace?: boolean }): Tensor;
  remainder(input: Tensor | number | boolean, other: Tensor | number | boolean): Tensor;
  renorm(input: Tensor, p: number, dim: number, maxnorm: number): Tensor;
  repeat(input: Tensor, repeats: number | readonly number[]): Tensor;
  repeat_interleave(input: Tensor, repeats: unknown, dim?: number): Tensor;
  repeat_interleave(input: Tensor, repeats: unknown, named: { dim?: number }): Tensor;
  reshape(input: Tensor, shape: number | readonly number[]): Tensor;
  reshape_as(input: Tensor, other: Tensor): Tensor;
  resolve_conj(input: Tensor): Tensor;
  resolve_neg(input: Tensor): Tensor;
  roll(input: Tensor, shifts: number | readonly number[], dims?: number | readonly number[]): Tensor;
  roll(input: Tensor, shifts: number | readonly number[], named: { dims?: number | readonly number[] }): Tensor;
  rot90(input: Tensor, k?: number, dims?: number | readonly number[]): Tensor;
  rot90(input: Tensor, named: { k?: number; dims?: number | readonly number[] }): Tensor;
  round(input: Tensor, decimals?: number): Tensor;
  round(input: Tensor, named: { decimals?: number }): Tensor;
  row_stack(tensors: readonly Tensor[]): Tensor;
  rsqrt(input: Tensor): Tensor;
  rsub(input: Tensor | number | boolean, other: Tensor | number | boolean, alpha?: Tensor | number | boolean): Tensor;
  rsub(input: Tensor | number | boolean, other: Tensor | number | boolean, named: { alpha?: Tensor | number | boolean }): Tensor;
  scalar_tensor(value: Tensor | number | boolean, dtype?: DType): Tensor;
  scalar_tensor(value: Tensor | number | boolean, named: { dtype?: DType }): Tensor;
  scatter(input: Tensor, dim: number, index: Tensor, src: Tensor | number | boolean, reduce?: string): Tensor;
  scatter(input: Tensor, dim: number, index: Tensor, src: Tensor | number | boolean, named: { reduce?: string }): Tensor;
  scatter_add(input: Tensor, dim: number, index: Tensor, src: Tensor): Tensor;
  scatter_nd(input: Tensor, indices: Tensor, updates: Tensor, reduce?: string): Tensor;
  scatter_nd(input: Tensor, indices: Tensor, updates: Tensor, named: { reduce?: string }): Tensor;
  scatter_reduce(input: Tensor, dim: number, index: Tensor, src: Tensor, reduce: string, include_self?: boolean): Tensor;
  scatter_reduce(input: Tensor, dim: number, index: Tensor, src: Tensor, reduce: string, named: { include_self?: boolean }): Tensor;
  searchsorted(sorted_sequence: Tensor, input: Tensor | number | boolean, right?: boolean, side?: string, sorter?: Tensor): Tensor;
  searchsorted(
    sorted_sequence: Tensor,
    input: Tensor | number | boolean,
    named: { right?: boolean; side?: string; sorter?: Tensor },
  ): Tensor;
  segment_reduce(
    data: Tensor,
    reduce: string,
    lengths?: Tensor,
    indices?: Tensor,
    offsets?: Tensor,
    axis?: number,
    initial?: number,
  ): Tensor;
  segment_reduce(
    data: Tensor,
    reduce: string,
    named: { lengths?: Tensor; indices?: Tensor; offsets?: Tensor; axis?: number; initial?: number },
  ): Tensor;
  select(input: Tensor, dim: number, index: number): Tensor;
  select_scatter(input: Tensor, src: Tensor, dim: number, index: number): Tensor;
  selu(input: Tensor, inplace?: boolean): Tensor;
  selu(input: Tensor, named: { inplace?: boolean }): Tensor;
  sgn(input: Tensor): Tensor;
  short(input: Tensor): Tensor;
  shrink_to(input: Tensor, size: number | readonly number[]): Tensor;
  sigmoid(input: Tensor): Tensor;
  sign(input: Tensor): Tensor;
  signbit(input: Tensor): Tensor;
  sin(input: Tensor): Tensor;
  sinc(input: Tensor): Tensor;
  sinh(input: Tensor): Tensor;
  slice(input: Tensor, dim?: number, start?: number, end?: number, step?: number): Tensor;
  slice(input: Tensor, named: { dim?: number; start?: number; end?: number; step?: number }): Tensor;
  slice_scatter(input: Tensor, src: Tensor, dim?: number, start?: number, end?: number, step?: number): Tensor;
  slice_scatter(input: Tensor, src: Tensor, named: { dim?: number; start?: number; end?: number; step?: number }): Tensor;
  slogdet(input: Tensor): [Tensor, Tensor];
  softmax(input: Tensor, dim: number, dtype?: DType): Tensor;
  softmax(input: Tensor, dim: number, named: { dtype?: DType }): Tensor;
  sort(input: Tensor, dim?: number, descending?: boolean, stable?: boolean): [Tensor, Tensor];
  sort(input: Tensor, named: { dim?: number; descending?: boolean; stable?: boolean }): [Tensor, Tensor];
  split(input: Tensor, split_size: unknown, dim?: number): Tensor[];
  split(input: Tensor, split_size: unknown, named: { dim?: number }): Tensor[];
  split_with_sizes(input: Tensor, split_sizes: number | readonly number[], dim?: number): Tensor[];
  split_with_sizes(input: Tensor, split_sizes: number | readonly number[], named: { dim?: number }): Tensor[];
  split_with_sizes_copy(input: Tensor, split_sizes: number | readonly number[], dim?: number): Tensor[];
  split_with_sizes_copy(input: Tensor, split_sizes: number | readonly number[], named: { dim?: number }): Tensor[];
  sqrt(input: Tensor): Tensor;
  square(input: Tensor): Tensor;
  squeeze(input: Tensor, dim?: number | readonly number[]): Tensor;
  squeeze(input: Tensor, named: { dim?: number | readonly number[] }): Tensor;
  squeeze_copy(input: Tensor, dim?: number | readonly number[]): Tensor;
  squeeze_copy(input: Tensor, named: { dim?: number | readonly number[] }): Tensor;
  stack(tensors: readonly Tensor[], dim?: number): Tensor;
  stack(tensors: readonly Tensor[], named: { dim?: number }): Tensor;
  std(input: Tensor, dim?: unknown, unbiased?: boolean, correction?: number, keepdim?: boolean): Tensor;
  std(input: Tensor, named: { dim?: unknown; unbiased?: boolean; correction?: number; keepdim?: boolean }): Tensor;
  std_mean(input: Tensor, dim?: unknown, unbiased?: boolean, correction?: number, keepdim?: boolean): [Tensor, Tensor];
  std_mean(input: Tensor, named: { dim?: unknown; unbiased?: boolean; correction?: number; keepdim?: boolean }): [Tensor, Tensor];
  stft(
    input: Tensor,
    n_fft: number,
    hop_length?: number,
    win_length?: number,
    window?: Tensor,
    center?: boolean,
    pad_mode?: string,
    normalized?: boolean,
    onesided?: boolean,
    return_complex?: boolean,
  ): Tensor;
  stft(
    input: Tensor,
    n_fft: number,
    named: { hop_length?: number;
      win_length?: number;
      window?: Tensor;
      center?: boolean;
      pad_mode?: string;
      normalized?: boolean;
      onesided?: boolean;
      return_complex?: boolean },
  ): Tensor;
  sub(input: Tensor | number | boolean, other: Tensor | number | boolean, alpha?: Tensor | number | boolean): Tensor;
  sub(input: Tensor | number | boolean, other: Tensor | number | boolean, named: { alpha?: Tensor | number | boolean }): Tensor;
  subtract(input: Tensor | number | boolean, other: Tensor | number | boolean, alpha?: Tensor | number | boolean): Tensor;
  subtract(input: Tensor | number | boolean, other: Tensor | number | boolean, named: { alpha?: Tensor | number | boolean }): Tensor;
  sum(input: Tensor, dim?: number | readonly number[], keepdim?: boolean, dtype?: DType): Tensor;
  sum(input: Tensor, named: { dim?: number | readonly number[]; keepdim?: boolean; dtype?: DType }): Tensor;
  sum_to_size(input: Tensor, size: number | readonly number[]): Tensor;
  svd(input: Tensor, some?: boolean, compute_uv?: boolean): [Tensor, Tensor, Tensor];
  svd(input: Tensor, named: { some?: boolean; compute_uv?: boolean }): [Tensor, Tensor, Tensor];
  swapaxes(input: Tensor, dim0: number, dim1: number): Tensor;
  swapdims(input: Tensor, dim0: number, dim1: number): Tensor;
  t(input: Tensor): Tensor;
  t_copy(input: Tensor): Tensor;
  take(input: Tensor, index: Tensor): Tensor;
  take_along_dim(input: Tensor, indices: Tensor, dim?: number): Tensor;
  take_along_dim(input: Tensor, indices: Tensor, named: { dim?: number }): Tensor;
  tan(input: Tensor): Tensor;
  tanh(input: Tensor): Tensor;
  tensor_split(input: Tensor, indices_or_sections: unknown, dim?: number): Tensor[];
  tensor_split(input: Tensor, indices_or_sections: unknown, named: { dim?: number }): Tensor[];
  tensordot(a: Tensor, b: Tensor, dims: unknown): Tensor;
  tile(input: Tensor, dims: number | readonly number[]): Tensor;
  topk(input: Tensor, k: number, dim?: number, largest?: boolean, sorted?: boolean): [Tensor, Tensor];
  topk(input: Tensor, k: number, named: { dim?: number; largest?: boolean; sorted?: boolean }): [Tensor, Tensor];
  trace(input: Tensor): Tensor;
  transpose(input: Tensor, dim0: number, dim1: number): Tensor;
  transpose_copy(input: Tensor, dim0: number, dim1: number): Tensor;
  trapezoid(y: Tensor, x?: Tensor, dx?: number, dim?: number): Tensor;
  trapezoid(y: Tensor, named: { x?: Tensor; dx?: number; dim?: number }): Tensor;
  trapz(y: Tensor, x?: Tensor, dx?: number, dim?: number): Tensor;
  trapz(y: Tensor, named: { x?: Tensor; dx?: number; dim?: number }): Tensor;
  triangular_solve(b: Tensor, A: Tensor, upper?: boolean, transpose?: boolean, unitriangular?: boolean): [Tensor, Tensor];
  triangular_solve(b: Tensor, A: Tensor, named: { upper?: boolean; transpose?: boolean; unitriangular?: boolean }): [Tensor, Tensor];
  tril(input: Tensor, diagonal?: number): Tensor;
  tril(input: Tensor, named: { diagonal?: number }): Tensor;
  tril_indices(row: number, col: number, offset?: number): Tensor;
  tril_indices(row: number, col: number, named: { offset?: number }): Tensor;
  triu(input: Tensor, diagonal?: number): Tensor;
  triu(input: Tensor, named: { diagonal?: number }): Tensor;
  triu_indices(row: number, col: number, offset?: number): Tensor;
  triu_indices(row: number, col: number, named: { offset?: number }): Tensor;
  true_divide(input: Tensor | number | boolean, other: Tensor | number | boolean, rounding_mode?: string): Tensor;
  true_divide(input: Tensor | number | boolean, other: Tensor | number | boolean, named: { rounding_mode?: string }): Tensor;
  trunc(input: Tensor): Tensor;
  unbind(input: Tensor, dim?: number): Tensor[];
  unbind(input: Tensor, named: { dim?: number }): Tensor[];
  unbind_copy(input: Tensor, dim?: number): Tensor[];
  unbind_copy(input: Tensor, named: { dim?: number }): Tensor[];
  unflatten(input: Tensor, dim: number, sizes: number | readonly number[]): Tensor;
  unfold(input: Tensor, dimension: number, size: number, step: number): Tensor;
  unfold_copy(input: Tensor, dimension: number, size: number, step: number): Tensor;
  unique(input: Tensor): [Tensor, Tensor];
  unique_consecutive(input: Tensor): [Tensor, Tensor];
  unsafe_chunk(input: Tensor, chunks: number, dim?: number): Tensor[];
  unsafe_chunk(input: Tensor, chunks: number, named: { dim?: number }): Tensor[];
  unsafe_split(input: Tensor, split_size: unknown, dim?: number): Tensor[];
  unsafe_split(input: Tensor, split_size: unknown, named: { dim?: number }): Tensor[];
  unsqueeze(input: Tensor, dim: number): Tensor;
  unsqueeze_copy(input: Tensor, dim: number): Tensor;
  var(input: Tensor, dim?: unknown, unbiased?: boolean, correction?: number, keepdim?: boolean): Tensor;
  var(input: Tensor, named: { dim?: unknown; unbiased?: boolean; correction?: number; keepdim?: boolean }): Tensor;
  var_mean(input: Tensor, dim?: unknown, unbiased?: boolean, correction?: number, keepdim?: boolean): [Tensor, Tensor];
  var_mean(input: Tensor, named: { dim?: unknown; unbiased?: boolean; correction?: number; keepdim?: boolean }): [Tensor, Tensor];
  vdot(input: Tensor, other: Tensor): Tensor;
  view(input: Tensor, shape: number | readonly number[]): Tensor;
  view_as(input: Tensor, other: Tensor): Tensor;
  view_copy(input: Tensor, shape: number | readonly number[]): Tensor;
  vsplit(input: Tensor, indices_or_sections: unknown): Tensor[];
  vstack(tensors: readonly Tensor[]): Tensor;
  where(condition: Tensor, input: Tensor | number | boolean, other: Tensor | number | boolean): Tensor;
  xlogy(input: Tensor | number | boolean, other: Tensor | number | boolean): Tensor;
  zero_(input: Tensor, dtype?: DType): Tensor;
  zero_(input: Tensor, named: { dtype?: DType }): Tensor;
  zeros(size: number | readonly number[], dtype?: DType): Tensor;
  zeros(size: number | readonly number[], named: { dtype?: DType }): Tensor;
  zeros_like(input: Tensor, dtype?: DType): Tensor;
  zeros_like(input: Tensor, named: { dtype?: DType }): Tensor;
  distributions: {
    gumbel(loc: number, scale: number, size: number | readonly number[]): Tensor;
    laplace(loc: number, scale: number, size: number | readonly number[]): Tensor;
  };
  fft: {
    fft(input: Tensor, n?: number, dim?: number, norm?: string, complex?: boolean): Tensor;
    fft(input: Tensor, named: { n?: number; dim?: number; norm?: string; complex?: boolean }): Tensor;
    fft2(input: Tensor, s?: number | readonly number[], dim?: number | readonly number[], norm?: string, complex?: boolean): Tensor;
    fft2(
      input: Tensor,
      named: { s?: number | readonly number[]; dim?: number | readonly number[]; norm?: string; complex?: boolean },
    ): Tensor;
    fftn(input: Tensor, s?: number | readonly number[], dim?: number | readonly number[], norm?: string, complex?: boolean): Tensor;
    fftn(
      input: Tensor,
      named: { s?: number | readonly number[]; dim?: number | readonly number[]; norm?: string; complex?: boolean },
    ): Tensor;
    fftshift(input: Tensor, dim?: number | readonly number[]): Tensor;
    fftshift(input: Tensor, named: { dim?: number | readonly number[] }): Tensor;
    hfft(input: Tensor, n?: number, dim?: number, norm?: string, complex?: boolean): Tensor;
    hfft(input: Tensor, named: { n?: number; dim?: number; norm?: string; complex?: boolean }): Tensor;
    hfft2(input: Tensor, s?: number | readonly number[], dim?: number | readonly number[], norm?: string, complex?: boolean): Tensor;
    hfft2(
      input: Tensor,
      named: { s?: number | readonly number[]; dim?: number | readonly number[]; norm?: string; complex?: boolean },
    ): Tensor;
    hfftn(input: Tensor, s?: number | readonly number[], dim?: number | readonly number[], norm?: string, complex?: boolean): Tensor;
    hfftn(
      input: Tensor,
      named: { s?: number | readonly number[]; dim?: number | readonly number[]; norm?: string; complex?: boolean },
    ): Tensor;
    ifft(input: Tensor, n?: number, dim?: number, norm?: string, complex?: boolean): Tensor;
    ifft(input: Tensor, named: { n?: number; dim?: number; norm?: string; complex?: boolean }): Tensor;
    ifft2(input: Tensor, s?: number | readonly number[], dim?: number | readonly number[], norm?: string, complex?: boolean): Tensor;
    ifft2(
      input: Tensor,
      named: { s?: number | readonly number[]; dim?: number | readonly number[]; norm?: string; complex?: boolean },
    ): Tensor;
    ifftn(input: Tensor, s?: number | readonly number[], dim?: number | readonly number[], norm?: string, complex?: boolean): Tensor;
    ifftn(
      input: Tensor,
      named: { s?: number | readonly number[]; dim?: number | readonly number[]; norm?: string; complex?: boolean },
    ): Tensor;
    ifftshift(input: Tensor, dim?: number | readonly number[]): Tensor;
    ifftshift(input: Tensor, named: { dim?: number | readonly number[] }): Tensor;
    ihfft(input: Tensor, n?: number, dim?: number, norm?: string): Tensor;
    ihfft(input: Tensor, named: { n?: number; dim?: number; norm?: string }): Tensor;
    ihfft2(input: Tensor, s?: number | readonly number[], dim?: number | readonly number[], norm?: string): Tensor;
    ihfft2(input: Tensor, named: { s?: number | readonly number[]; dim?: number | readonly number[]; norm?: string }): Tensor;
    ihfftn(input: Tensor, s?: number | readonly number[], dim?: number | readonly number[], norm?: string): Tensor;
    ihfftn(input: Tensor, named: { s?: number | readonly number[]; dim?: number | readonly number[]; norm?: string }): Tensor;
    irfft(input: Tensor, n?: number, dim?: number, norm?: string, complex?: boolean): Tensor;
    irfft(input: Tensor, named: { n?: number; dim?: number; norm?: string; complex?: boolean }): Tensor;
    irfft2(input: Tensor, s?: number | readonly number[], dim?: number | readonly number[], norm?: string, complex?: boolean): Tensor;
    irfft2(
      input: Tensor,
      named: { s?: number | readonly number[]; dim?: number | readonly number[]; norm?: string; complex?: boolean },
    ): Tensor;
    irfftn(input: Tensor, s?: number | readonly number[], dim?: number | readonly number[], norm?: string, complex?: boolean): Tensor;
    irfftn(
      input: Tensor,
      named: { s?: number | readonly number[]; dim?: number | readonly number[]; norm?: string; complex?: boolean },
    ): Tensor;
    rfft(input: Tensor, n?: number, dim?: number, norm?: string): Tensor;
    rfft(input: Tensor, named: { n?: number; dim?: number; norm?: string }): Tensor;
    rfft2(input: Tensor, s?: number | readonly number[], dim?: number | readonly number[], norm?: string): Tensor;
    rfft2(input: Tensor, named: { s?: number | readonly number[]; dim?: number | readonly number[]; norm?: string }): Tensor;
    rfftn(input: Tensor, s?: number | readonly number[], dim?: number | readonly number[], norm?: string): Tensor;
    rfftn(input: Tensor, named: { s?: number | readonly number[]; dim?: number | readonly number[]; norm?: string }): Tensor;
  };
  linalg: {
    cholesky(input: Tensor, upper?: boolean): Tensor;
    cholesky(input: Tensor, named: { upper?: boolean }): Tensor;
    cholesky_ex(input: Tensor, upper?: boolean, check_errors?: boolean): [Tensor, Tensor];
    cholesky_ex(input: Tensor, named: { upper?: boolean; check_errors?: boolean }): [Tensor, Tensor];
    cond(input: Tensor, p?: unknown): Tensor;
    cond(input: Tensor, named: { p?: unknown }): Tensor;
    cross(input: Tensor, other: Tensor, dim?: number): Tensor;
    cross(input: Tensor, other: Tensor, named: { dim?: number }): Tensor;
    det(input: Tensor): Tensor;
    diagonal(input: Tensor, offset?: number, dim1?: number, dim2?: number): Tensor;
    diagonal(input: Tensor, named: { offset?: number; dim1?: number; dim2?: number }): Tensor;
    eigh(input: Tensor, UPLO?: string): [Tensor, Tensor];
    eigh(input: Tensor, named: { UPLO?: string }): [Tensor, Tensor];
    eigvalsh(input: Tensor, UPLO?: string): Tensor;
    eigvalsh(input: Tensor, named: { UPLO?: string }): Tensor;
    householder_product(input: Tensor, tau: Tensor): Tensor;
    inv(input: Tensor): Tensor;
    inv_ex(input: Tensor, check_errors?: boolean): [Tensor, Tensor];
    inv_ex(input: Tensor, named: { check_errors?: boolean }): [Tensor, Tensor];
    lstsq(A: Tensor, B: Tensor, rcond?: number, driver?: string): [Tensor, Tensor, Tensor, Tensor];
    lstsq(A: Tensor, B: Tensor, named: { rcond?: number; driver?: string }): [Tensor, Tensor, Tensor, Tensor];
    lu(input: Tensor, pivot?: boolean): [Tensor, Tensor, Tensor];
    lu(input: Tensor, named: { pivot?: boolean }): [Tensor, Tensor, Tensor];
    lu_factor(A: Tensor, pivot?: boolean): [Tensor, Tensor];
    lu_factor(A: Tensor, named: { pivot?: boolean }): [Tensor, Tensor];
    lu_factor_ex(A: Tensor, pivot?: boolean, check_errors?: boolean): [Tensor, Tensor, Tensor];
    lu_factor_ex(A: Tensor, named: { pivot?: boolean; check_errors?: boolean }): [Tensor, Tensor, Tensor];
    lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, left?: boolean, adjoint?: boolean): Tensor;
    lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, named: { left?: boolean; adjoint?: boolean }): Tensor;
    matrix_exp(input: Tensor): Tensor;
    matrix_norm(input: Tensor, ord?: unknown, dim?: number | readonly number[], keepdim?: boolean, dtype?: DType): Tensor;
    matrix_norm(input: Tensor, named: { ord?: unknown; dim?: number | readonly number[]; keepdim?: boolean; dtype?: DType }): Tensor;
    matrix_power(input: Tensor, n: number): Tensor;
    matrix_rank(A: Tensor, atol?: Tensor | number | boolean, rtol?: Tensor | number | boolean, hermitian?: boolean): Tensor;
    matrix_rank(A: Tensor, named: { atol?: Tensor | number | boolean; rtol?: Tensor | number | boolean; hermitian?: boolean }): Tensor;
    matrix_sqrth(A: Tensor): Tensor;
    multi_dot(tensors: readonly Tensor[]): Tensor;
    norm(input: Tensor, ord?: unknown, dim?: number | readonly number[], keepdim?: boolean, dtype?: DType): Tensor;
    norm(input: Tensor, named: { ord?: unknown; dim?: number | readonly number[]; keepdim?: boolean; dtype?: DType }): Tensor;
    pinv(A: Tensor, atol?: Tensor | number | boolean, rtol?: Tensor | number | boolean, hermitian?: boolean): Tensor;
    pinv(A: Tensor, named: { atol?: Tensor | number | boolean; rtol?: Tensor | number | boolean; hermitian?: boolean }): Tensor;
    polar(A: Tensor): [Tensor, Tensor];
    qr(input: Tensor, mode?: string): [Tensor, Tensor];
    qr(input: Tensor, named: { mode?: string }): [Tensor, Tensor];
    slogdet(input: Tensor): [Tensor, Tensor];
    solve(A: Tensor, B: Tensor, left?: boolean): Tensor;
    solve(A: Tensor, B: Tensor, named: { left?: boolean }): Tensor;
    solve_ex(A: Tensor, B: Tensor, left?: boolean, check_errors?: boolean): [Tensor, Tensor];
    solve_ex(A: Tensor, B: Tensor, named: { left?: boolean; check_errors?: boolean }): [Tensor, Tensor];
    solve_triangular(A: Tensor, B: Tensor, upper: boolean, left?: boolean, unitriangular?: boolean): Tensor;
    solve_triangular(A: Tensor, B: Tensor, upper: boolean, named: { left?: boolean; unitriangular?: boolean }): Tensor;
    svd(input: Tensor, full_matrices?: boolean): [Tensor, Tensor, Tensor];
    svd(input: Tensor, named: { full_matrices?: boolean }): [Tensor, Tensor, Tensor];
    svdvals(input: Tensor): Tensor;
    tensorinv(A: Tensor, ind?: number): Tensor;
    tensorinv(A: Tensor, named: { ind?: number }): Tensor;
    tensorsolve(A: Tensor, B: Tensor, dims?: number | readonly number[]): Tensor;
    tensorsolve(A: Tensor, B: Tensor, named: { dims?: number | readonly number[] }): Tensor;
    vander(input: Tensor, N?: number): Tensor;
    vander(input: Tensor, named: { N?: number }): Tensor;
    vecdot(x: Tensor, y: Tensor, dim?: number): Tensor;
    vecdot(x: Tensor, y: Tensor, named: { dim?: number }): Tensor;
    vector_norm(input: Tensor, ord?: number, dim?: number | readonly number[], keepdim?: boolean, dtype?: DType): Tensor;
    vector_norm(input: Tensor, named: { ord?: number; dim?: number | readonly number[]; keepdim?: boolean; dtype?: DType }): Tensor;
  };
  masked: {
    amax(input: Tensor, dim?: number | readonly number[], keepdim?: boolean, dtype?: DType, mask?: Tensor): Tensor;
    amax(input: Tensor, named: { dim?: number | readonly number[]; keepdim?: boolean; dtype?: DType; mask?: Tensor }): Tensor;
    amin(input: Tensor, dim?: number | readonly number[], keepdim?: boolean, dtype?: DType, mask?: Tensor): Tensor;
    amin(input: Tensor, named: { dim?: number | readonly number[]; keepdim?: boolean; dtype?: DType; mask?: Tensor }): Tensor;
    argmax(input: Tensor, dim?: number, keepdim?: boolean, dtype?: DType, mask?: Tensor): Tensor;
    argmax(input: Tensor, named: { dim?: number; keepdim?: boolean; dtype?: DType; mask?: Tensor }): Tensor;
    argmin(input: Tensor, dim?: number, keepdim?: boolean, dtype?: DType, mask?: Tensor): Tensor;
    argmin(input: Tensor, named: { dim?: number; keepdim?: boolean; dtype?: DType; mask?: Tensor }): Tensor;
    cumprod(input: Tensor, dim: number, dtype?: DType, mask?: Tensor): Tensor;
    cumprod(input: Tensor, dim: number, named: { dtype?: DType; mask?: Tensor }): Tensor;
    cumsum(input: Tensor, dim: number, dtype?: DType, mask?: Tensor): Tensor;
    cumsum(input: Tensor, dim: number, named: { dtype?: DType; mask?: Tensor }): Tensor;
    log_softmax(input: Tensor, dim: number, dtype?: DType, mask?: Tensor): Tensor;
    log_softmax(input: Tensor, dim: number, named: { dtype?: DType; mask?: Tensor }): Tensor;
    logaddexp(input: Tensor, other: Tensor, dtype?: DType, input_mask?: Tensor, other_mask?: Tensor): Tensor;
    logaddexp(input: Tensor, other: Tensor, named: { dtype?: DType; input_mask?: Tensor; other_mask?: Tensor }): Tensor;
    logsumexp(input: Tensor, dim?: number | readonly number[], keepdim?: boolean, dtype?: DType, mask?: Tensor): Tensor;
    logsumexp(input: Tensor, named: { dim?: number | readonly number[]; keepdim?: boolean; dtype?: DType; mask?: Tensor }): Tensor;
    mean(input: Tensor, dim?: number | readonly number[], keepdim?: boolean, dtype?: DType, mask?: Tensor): Tensor;
    mean(input: Tensor, named: { dim?: number | readonly number[]; keepdim?: boolean; dtype?: DType; mask?: Tensor }): Tensor;
    median(input: Tensor, dim: number, keepdim?: boolean, dtype?: DType, mask?: Tensor): Tensor;
    median(input: Tensor, dim: number, named: { keepdim?: boolean; dtype?: DType; mask?: Tensor }): Tensor;
    norm(input: Tensor, ord: number, dim?: number | readonly number[], keepdim?: boolean, dtype?: DType, mask?: Tensor): Tensor;
    norm(input: Tensor, ord: number, named: { dim?: number | readonly number[]; keepdim?: boolean; dtype?: DType; mask?: Tensor }): Tensor;
    normalize(input: Tensor, ord: number, dim: number, eps?: number, dtype?: DType, mask?: Tensor): Tensor;
    normalize(input: Tensor, ord: number, dim: number, named: { eps?: number; dtype?: DType; mask?: Tensor }): Tensor;
    prod(input: Tensor, dim?: number | readonly number[], keepdim?: boolean, dtype?: DType, mask?: Tensor): Tensor;
    prod(input: Tensor, named: { dim?: number | readonly number[]; keepdim?: boolean; dtype?: DType; mask?: Tensor }): Tensor;
    softmax(input: Tensor, dim: number, dtype?: DType, mask?: Tensor): Tensor;
    softmax(input: Tensor, dim: number, named: { dtype?: DType; mask?: Tensor }): Tensor;
    softmin(input: Tensor, dim: number, dtype?: DType, mask?: Tensor): Tensor;
    softmin(input: Tensor, dim: number, named: { dtype?: DType; mask?: Tensor }): Tensor;
    std(
      input: Tensor,
      dim?: number | readonly number[],
      unbiased?: boolean,
      correction?: number,
      keepdim?: boolean,
      dtype?: DType,
      mask?: Tensor,
    ): Tensor;
    std(
      input: Tensor,
      named: { dim?: number | readonly number[];
        unbiased?: boolean;
        correction?: number;
        keepdim?: boolean;
        dtype?: DType;
        mask?: Tensor },
    ): Tensor;
    sum(input: Tensor, dim?: number | readonly number[], keepdim?: boolean, dtype?: DType, mask?: Tensor): Tensor;
    sum(input: Tensor, named: { dim?: number | readonly number[]; keepdim?: boolean; dtype?: DType; mask?: Tensor }): Tensor;
    var(
      input: Tensor,
      dim?: number | readonly number[],
      unbiased?: boolean,
      correction?: number,
      keepdim?: boolean,
      dtype?: DType,
      mask?: Tensor,
    ): Tensor;
    var(
      input: Tensor,
      named: { dim?: number | readonly number[];
        unbiased?: boolean;
        correction?: number;
        keepdim?: boolean;
        dtype?: DType;
        mask?: Tensor },
    ): Tensor;
  };
  nn: {
    functional: {
      adaptive_avg_pool1d(input: Tensor, output_size: unknown): Tensor;
      adaptive_avg_pool2d(input: Tensor, output_size: unknown): Tensor;
      adaptive_avg_pool3d(input: Tensor, output_size: unknown): Tensor;
      adaptive_max_pool1d(input: Tensor, output_size: unknown, return_indices?: boolean): Tensor[];
      adaptive_max_pool1d(input: Tensor, output_size: unknown, named: { return_indices?: boolean }): Tensor[];
      adaptive_max_pool2d(input: Tensor, output_size: unknown, return_indices?: boolean): Tensor[];
      adaptive_max_pool2d(input: Tensor, output_size: unknown, named: { return_indices?: boolean }): Tensor[];
      adaptive_max_pool3d(input: Tensor, output_size: unknown, return_indices?: boolean): Tensor[];
      adaptive_max_pool3d(input: Tensor, output_size: unknown, named: { return_indices?: boolean }): Tensor[];
      affine_grid(theta: Tensor, size: number | readonly number[], align_corners?: boolean): Tensor;
      affine_grid(theta: Tensor, size: number | readonly number[], named: { align_corners?: boolean }): Tensor;
      avg_pool1d(
        input: Tensor,
        kernel_size: number | readonly number[],
        stride?: number | readonly number[],
        padding?: number | readonly number[],
        ceil_mode?: boolean,
        count_include_pad?: boolean,
        divisor_override?: number,
      ): Tensor;
      avg_pool1d(
        input: Tensor,
        kernel_size: number | readonly number[],
        named: { stride?: number | readonly number[];
          padding?: number | readonly number[];
          ceil_mode?: boolean;
          count_include_pad?: boolean;
          divisor_override?: number },
      ): Tensor;
      avg_pool2d(
        input: Tensor,
        kernel_size: number | readonly number[],
        stride?: number | readonly number[],
        padding?: number | readonly number[],
        ceil_mode?: boolean,
        count_include_pad?: boolean,
        divisor_override?: number,
      ): Tensor;
      avg_pool2d(
        input: Tensor,
        kernel_size: number | readonly number[],
        named: { stride?: number | readonly number[];
          padding?: number | readonly number[];
          ceil_mode?: boolean;
          count_include_pad?: boolean;
          divisor_override?: number },
      ): Tensor;
      avg_pool3d(
        input: Tensor,
        kernel_size: number | readonly number[],
        stride?: number | readonly number[],
        padding?: number | readonly number[],
        ceil_mode?: boolean,
        count_include_pad?: boolean,
        divisor_override?: number,
      ): Tensor;
      avg_pool3d(
        input: Tensor,
        kernel_size: number | readonly number[],
        named: { stride?: number | readonly number[];
          padding?: number | readonly number[];
          ceil_mode?: boolean;
          count_include_pad?: boolean;
          divisor_override?: number },
      ): Tensor;
      batch_norm(
        input: Tensor,
        running_mean?: Tensor,
        running_var?: Tensor,
        weight?: Tensor,
        bias?: Tensor,
        training?: boolean,
        momentum?: number,
        eps?: number,
      ): Tensor;
      batch_norm(
        input: Tensor,
        named: { running_mean?: Tensor;
          running_var?: Tensor;
          weight?: Tensor;
          bias?: Tensor;
          training?: boolean;
          momentum?: number;
          eps?: number },
      ): Tensor;
      bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias?: Tensor): Tensor;
      bilinear(input1: Tensor, input2: Tensor, weight: Tensor, named: { bias?: Tensor }): Tensor;
      binary_cross_entropy(
        input: Tensor,
        target: Tensor,
        weight?: Tensor,
        size_average?: boolean,
        reduce?: boolean,
        reduction?: string,
      ): Tensor;
      binary_cross_entropy(
        input: Tensor,
        target: Tensor,
        named: { weight?: Tensor; size_average?: boolean; reduce?: boolean; reduction?: string },
      ): Tensor;
      binary_cross_entropy_with_logits(
        input: Tensor,
        target: Tensor,
        weight?: Tensor,
        size_average?: boolean,
        reduce?: boolean,
        reduction?: string,
        pos_weight?: Tensor,
      ): Tensor;
      binary_cross_entropy_with_logits(
        input: Tensor,
        target: Tensor,
        named: { weight?: Tensor; size_average?: boolean; reduce?: boolean; reduction?: string; pos_weight?: Tensor },
      ): Tensor;
      celu(input: Tensor, alpha?: number, inplace?: boolean): Tensor;
      celu(input: Tensor, named: { alpha?: number; inplace?: boolean }): Tensor;
      channel_shuffle(input: Tensor, groups: number): Tensor;
      conv1d(
        input: Tensor,
        weight: Tensor,
        bias?: Tensor,
        stride?: number | readonly number[],
        padding?: unknown,
        dilation?: number | readonly number[],
        groups?: number,
      ): Tensor;
      conv1d(
        input: Tensor,
        weight: Tensor,
        named: { bias?: Tensor;
          stride?: number | readonly number[];
          padding?: unknown;
          dilation?: number | readonly number[];
          groups?: number },
      ): Tensor;
      conv2d(
        input: Tensor,
        weight: Tensor,
        bias?: Tensor,
        stride?: number | readonly number[],
        padding?: unknown,
        dilation?: number | readonly number[],
        groups?: number,
      ): Tensor;
      conv2d(
        input: Tensor,
        weight: Tensor,
        named: { bias?: Tensor;
          stride?: number | readonly number[];
          padding?: unknown;
          dilation?: number | readonly number[];
          groups?: number },
      ): Tensor;
      conv3d(
        input: Tensor,
        weight: Tensor,
        bias?: Tensor,
        stride?: number | readonly number[],
        padding?: unknown,
        dilation?: number | readonly number[],
        groups?: number,
      ): Tensor;
      conv3d(
        input: Tensor,
        weight: Tensor,
        named: { bias?: Tensor;
          stride?: number | readonly number[];
          padding?: unknown;
          dilation?: number | readonly number[];
          groups?: number },
      ): Tensor;
      conv_transpose1d(
        input: Tensor,
        weight: Tensor,
        bias?: Tensor,
        stride?: number | readonly number[],
        padding?: number | readonly number[],
        output_padding?: number | readonly number[],
        groups?: number,
        dilation?: number | readonly number[],
      ): Tensor;
      conv_transpose1d(
        input: Tensor,
        weight: Tensor,
        named: { bias?: Tensor;
          stride?: number | readonly number[];
          padding?: number | readonly number[];
          output_padding?: number | readonly number[];
          groups?: number;
          dilation?: number | readonly number[] },
      ): Tensor;
      conv_transpose2d(
        input: Tensor,
        weight: Tensor,
        bias?: Tensor,
        stride?: number | readonly number[],
        padding?: number | readonly number[],
        output_padding?: number | readonly number[],
        groups?: number,
        dilation?: number | readonly number[],
      ): Tensor;
      conv_transpose2d(
        input: Tensor,
        weight: Tensor,
        named: { bias?: Tensor;
          stride?: number | readonly number[];
          padding?: number | readonly number[];
          output_padding?: number | readonly number[];
          groups?: number;
          dilation?: number | readonly number[] },
      ): Tensor;
      conv_transpose3d(
        input: Tensor,
        weight: Tensor,
        bias?: Tensor,
        stride?: number | readonly number[],
        padding?: number | readonly number[],
        output_padding?: number | readonly number[],
        groups?: number,
        dilation?: number | readonly number[],
      ): Tensor;
      conv_transpose3d(
        input: Tensor,
        weight: Tensor,
        named: { bias?: Tensor;
          stride?: number | readonly number[];
          padding?: number | readonly number[];
          output_padding?: number | readonly number[];
          groups?: number;
          dilation?: number | readonly number[] },
      ): Tensor;
      cosine_embedding_loss(
        input1: Tensor,
        input2: Tensor,
        target: Tensor,
        margin?: number,
        size_average?: boolean,
        reduce?: boolean,
        reduction?: string,
      ): Tensor;
      cosine_embedding_loss(
        input1: Tensor,
        input2: Tensor,
        target: Tensor,
        named: { margin?: number; size_average?: boolean; reduce?: boolean; reduction?: string },
      ): Tensor;
      cosine_similarity(x1: Tensor, x2: Tensor, dim?: number, eps?: number): Tensor;
      cosine_similarity(x1: Tensor, x2: Tensor, named: { dim?: number; eps?: number }): Tensor;
      cross_entropy(
        input: Tensor,
        target: Tensor,
        weight?: Tensor,
        size_average?: boolean,
        ignore_index?: number,
        reduce?: boolean,
        reduction?: string,
        label_smoothing?: number,
      ): Tensor;
      cross_entropy(
        input: Tensor,
        target: Tensor,
        named: { weight?: Tensor;
          size_average?: boolean;
          ignore_index?: number;
          reduce?: boolean;
          reduction?: string;
          label_smoothing?: number },
      ): Tensor;
      ctc_loss(
        log_probs: Tensor,
        targets: Tensor,
        input_lengths: Tensor,
        target_lengths: Tensor,
        blank?: number,
        reduction?: string,
      ): Tensor;
      ctc_loss(
        log_probs: Tensor,
        targets: Tensor,
        input_lengths: Tensor,
        target_lengths: Tensor,
        named: { blank?: number; reduction?: string },
      ): Tensor;
      elu(input: Tensor, alpha?: number, inplace?: boolean): Tensor;
      elu(input: Tensor, named: { alpha?: number; inplace?: boolean }): Tensor;
      embedding(
        input: Tensor,
        weight: Tensor,
        padding_idx?: number,
        max_norm?: number,
        norm_type?: number,
        scale_grad_by_freq?: boolean,
        sparse?: boolean,
      ): Tensor;
      embedding(
        input: Tensor,
        weight: Tensor,
        named: { padding_idx?: number; max_norm?: number; norm_type?: number; scale_grad_by_freq?: boolean; sparse?: boolean },
      ): Tensor;
      fold(
        input: Tensor,
        output_size: number | readonly number[],
        kernel_size: number | readonly number[],
        dilation?: number | readonly number[],
        padding?: number | readonly number[],
        stride?: number | readonly number[],
      ): Tensor;
      fold(
        input: Tensor,
        output_size: number | readonly number[],
        kernel_size: number | readonly number[],
        named: { dilation?: number | readonly number[];
          padding?: number | readonly number[];
          stride?: number | readonly number[] },
      ): Tensor;
      fractional_max_pool2d(
        input: Tensor,
        kernel_size: number | readonly number[],
        output_size?: number | readonly number[],
        output_ratio?: number | readonly number[],
        return_indices?: boolean,
        _random_samples?: Tensor,
      ): Tensor;
      fractional_max_pool2d(
        input: Tensor,
        kernel_size: number | readonly number[],
        named: { output_size?: number | readonly number[];
          output_ratio?: number | readonly number[];
          return_indices?: boolean;
          _random_samples?: Tensor },
      ): Tensor;
      fractional_max_pool3d(
        input: Tensor,
        kernel_size: number | readonly number[],
        output_size?: number | readonly number[],
        output_ratio?: number | readonly number[],
        return_indices?: boolean,
        _random_samples?: Tensor,
      ): Tensor;
      fractional_max_pool3d(
        input: Tensor,
        kernel_size: number | readonly number[],
        named: { output_size?: number | readonly number[];
          output_ratio?: number | readonly number[];
          return_indices?: boolean;
          _random_samples?: Tensor },
      ): Tensor;
      gaussian_nll_loss(
        input: Tensor,
        target: Tensor,
        var_: Tensor | number | boolean,
        full?: boolean,
        eps?: number,
        reduction?: string,
      ): Tensor;
      gaussian_nll_loss(
        input: Tensor,
        target: Tensor,
        var_: Tensor | number | boolean,
        named: { full?: boolean; eps?: number; reduction?: string },
      ): Tensor;
      gelu(input: Tensor, approximate?: string): Tensor;
      gelu(input: Tensor, named: { approximate?: string }): Tensor;
      glu(input: Tensor, dim?: number): Tensor;
      glu(input: Tensor, named: { dim?: number }): Tensor;
      grid_sample(input: Tensor, grid: Tensor, mode?: string, padding_mode?: string, align_corners?: boolean): Tensor;
      grid_sample(input: Tensor, grid: Tensor, named: { mode?: string; padding_mode?: string; align_corners?: boolean }): Tensor;
      group_norm(input: Tensor, num_groups: number, weight?: Tensor, bias?: Tensor, eps?: number): Tensor;
      group_norm(input: Tensor, num_groups: number, named: { weight?: Tensor; bias?: Tensor; eps?: number }): Tensor;
      hardshrink(input: Tensor, lambd?: number): Tensor;
      hardshrink(input: Tensor, named: { lambd?: number }): Tensor;
      hardsigmoid(input: Tensor, inplace?: boolean): Tensor;
      hardsigmoid(input: Tensor, named: { inplace?: boolean }): Tensor;
      hardswish(input: Tensor, inplace?: boolean): Tensor;
      hardswish(input: Tensor, named: { inplace?: boolean }): Tensor;
      hardtanh(input: Tensor, min_val?: Tensor | number | boolean, max_val?: Tensor | number | boolean, inplace?: boolean): Tensor;
      hardtanh(
        input: Tensor,
        named: { min_val?: Tensor | number | boolean; max_val?: Tensor | number | boolean; inplace?: boolean },
      ): Tensor;
      hinge_embedding_loss(
        input: Tensor,
        target: Tensor,
        margin?: number,
        size_average?: boolean,
        reduce?: boolean,
        reduction?: string,
      ): Tensor;
      hinge_embedding_loss(
        input: Tensor,
        target: Tensor,
        named: { margin?: number; size_average?: boolean; reduce?: boolean; reduction?: string },
      ): Tensor;
      huber_loss(input: Tensor, target: Tensor, reduction?: string, delta?: number, weight?: Tensor): Tensor;
      huber_loss(input: Tensor, target: Tensor, named: { reduction?: string; delta?: number; weight?: Tensor }): Tensor;
      instance_norm(
        input: Tensor,
        running_mean?: Tensor,
        running_var?: Tensor,
        weight?: Tensor,
        bias?: Tensor,
        use_input_stats?: boolean,
        momentum?: number,
        eps?: number,
      ): Tensor;
      instance_norm(
        input: Tensor,
        named: { running_mean?: Tensor;
          running_var?: Tensor;
          weight?: Tensor;
          bias?: Tensor;
          use_input_stats?: boolean;
          momentum?: number;
          eps?: number },
      ): Tensor;
      interpolate(
        input: Tensor,
        size?: number | readonly number[],
        scale_factor?: number | readonly number[],
        mode?: string,
        align_corners?: boolean,
        recompute_scale_factor?: boolean,
        antialias?: boolean,
      ): Tensor;
      interpolate(
        input: Tensor,
        named: { size?: number | readonly number[];
          scale_factor?: number | readonly number[];
          mode?: string;
          align_corners?: boolean;
          recompute_scale_factor?: boolean;
          antialias?: boolean },
      ): Tensor;
      kl_div(input: Tensor, target: Tensor, size_average?: boolean, reduce?: boolean, reduction?: string, log_target?: boolean): Tensor;
      kl_div(
        input: Tensor,
        target: Tensor,
        named: { size_average?: boolean; reduce?: boolean; reduction?: string; log_target?: boolean },
      ): Tensor;
      l1_loss(input: Tensor, target: Tensor, size_average?: boolean, reduce?: boolean, reduction?: string, weight?: Tensor): Tensor;
      l1_loss(
        input: Tensor,
        target: Tensor,
        named: { size_average?: boolean; reduce?: boolean; reduction?: string; weight?: Tensor },
      ): Tensor;
      layer_norm(input: Tensor, normalized_shape: number | readonly number[], weight?: Tensor, bias?: Tensor, eps?: number): Tensor;
      layer_norm(
        input: Tensor,
        normalized_shape: number | readonly number[],
        named: { weight?: Tensor; bias?: Tensor; eps?: number },
      ): Tensor;
      leaky_relu(input: Tensor, negative_slope?: number, inplace?: boolean): Tensor;
      leaky_relu(input: Tensor, named: { negative_slope?: number; inplace?: boolean }): Tensor;
      linear(input: Tensor, weight: Tensor, bias?: Tensor): Tensor;
      linear(input: Tensor, weight: Tensor, named: { bias?: Tensor }): Tensor;
      local_response_norm(input: Tensor, size: number, alpha?: number, beta?: number, k?: number): Tensor;
      local_response_norm(input: Tensor, size: number, named: { alpha?: number; beta?: number; k?: number }): Tensor;
      logsigmoid(input: Tensor): Tensor;
      lp_pool1d(
        input: Tensor,
        norm_type: number,
        kernel_size: number | readonly number[],
        stride?: number | readonly number[],
        ceil_mode?: boolean,
      ): Tensor;
      lp_pool1d(
        input: Tensor,
        norm_type: number,
        kernel_size: number | readonly number[],
        named: { stride?: number | readonly number[]; ceil_mode?: boolean },
      ): Tensor;
      lp_pool2d(
        input: Tensor,
        norm_type: number,
        kernel_size: number | readonly number[],
        stride?: number | readonly number[],
        ceil_mode?: boolean,
      ): Tensor;
      lp_pool2d(
        input: Tensor,
        norm_type: number,
        kernel_size: number | readonly number[],
        named: { stride?: number | readonly number[]; ceil_mode?: boolean },
      ): Tensor;
      lp_pool3d(
        input: Tensor,
        norm_type: number,
        kernel_size: number | readonly number[],
        stride?: number | readonly number[],
        ceil_mode?: boolean,
      ): Tensor;
      lp_pool3d(
        input: Tensor,
        norm_type: number,
        kernel_size: number | readonly number[],
        named: { stride?: number | readonly number[]; ceil_mode?: boolean },
      ): Tensor;
      margin_ranking_loss(
        input1: Tensor,
        input2: Tensor,
        target: Tensor,
        margin?: number,
        size_average?: boolean,
        reduce?: boolean,
        reduction?: string,
      ): Tensor;
      margin_ranking_loss(
        input1: Tensor,
        input2: Tensor,
        target: Tensor,
        named: { margin?: number; size_average?: boolean; reduce?: boolean; reduction?: string },
      ): Tensor;
      max_pool1d(
        input: Tensor,
        kernel_size: number | readonly number[],
        stride?: number | readonly number[],
        padding?: number | readonly number[],
        dilation?: number | readonly number[],
        ceil_mode?: boolean,
        return_indices?: boolean,
      ): Tensor[];
      max_pool1d(
        input: Tensor,
        kernel_size: number | readonly number[],
        named: { stride?: number | readonly number[];
          padding?: number | readonly number[];
          dilation?: number | readonly number[];
          ceil_mode?: boolean;
          return_indices?: boolean },
      ): Tensor[];
      max_pool2d(
        input: Tensor,
        kernel_size: number | readonly number[],
        stride?: number | readonly number[],
        padding?: number | readonly number[],
        dilation?: number | readonly number[],
        ceil_mode?: boolean,
        return_indices?: boolean,
      ): Tensor[];
      max_pool2d(
        input: Tensor,
        kernel_size: number | readonly number[],
        named: { stride?: number | readonly number[];
          padding?: number | readonly number[];
          dilation?: number | readonly number[];
          ceil_mode?: boolean;
          return_indices?: boolean },
      ): Tensor[];
      max_pool3d(
        input: Tensor,
        kernel_size: number | readonly number[],
        stride?: number | readonly number[],
        padding?: number | readonly number[],
        dilation?: number | readonly number[],
        ceil_mode?: boolean,
        return_indices?: boolean,
      ): Tensor[];
      max_pool3d(
        input: Tensor,
        kernel_size: number | readonly number[],
        named: { stride?: number | readonly number[];
          padding?: number | readonly number[];
          dilation?: number | readonly number[];
          ceil_mode?: boolean;
          return_indices?: boolean },
      ): Tensor[];
      max_unpool1d(
        input: Tensor,
        indices: Tensor,
        kernel_size: number | readonly number[],
        stride?: number | readonly number[],
        padding?: number | readonly number[],
        output_size?: number | readonly number[],
      ): Tensor;
      max_unpool1d(
        input: Tensor,
        indices: Tensor,
        kernel_size: number | readonly number[],
        named: { stride?: number | readonly number[];
          padding?: number | readonly number[];
          output_size?: number | readonly number[] },
      ): Tensor;
      max_unpool2d(
        input: Tensor,
        indices: Tensor,
        kernel_size: number | readonly number[],
        stride?: number | readonly number[],
        padding?: number | readonly number[],
        output_size?: number | readonly number[],
      ): Tensor;
      max_unpool2d(
        input: Tensor,
        indices: Tensor,
        kernel_size: number | readonly number[],
        named: { stride?: number | readonly number[];
          padding?: number | readonly number[];
          output_size?: number | readonly number[] },
      ): Tensor;
      max_unpool3d(
        input: Tensor,
        indices: Tensor,
        kernel_size: number | readonly number[],
        stride?: number | readonly number[],
        padding?: number | readonly number[],
        output_size?: number | readonly number[],
      ): Tensor;
      max_unpool3d(
        input: Tensor,
        indices: Tensor,
        kernel_size: number | readonly number[],
        named: { stride?: number | readonly number[];
          padding?: number | readonly number[];
          output_size?: number | readonly number[] },
      ): Tensor;
      mish(input: Tensor, inplace?: boolean): Tensor;
      mish(input: Tensor, named: { inplace?: boolean }): Tensor;
      mse_loss(input: Tensor, target: Tensor, size_average?: boolean, reduce?: boolean, reduction?: string, weight?: Tensor): Tensor;
      mse_loss(
        input: Tensor,
        target: Tensor,
        named: { size_average?: boolean; reduce?: boolean; reduction?: string; weight?: Tensor },
      ): Tensor;
      multi_margin_loss(
        input: Tensor,
        target: Tensor,
        p?: number,
        margin?: number,
        weight?: Tensor,
        size_average?: boolean,
        reduce?: boolean,
        reduction?: string,
      ): Tensor;
      multi_margin_loss(
        input: Tensor,
        target: Tensor,
        named: { p?: number; margin?: number; weight?: Tensor; size_average?: boolean; reduce?: boolean; reduction?: string },
      ): Tensor;
      multilabel_margin_loss(input: Tensor, target: Tensor, size_average?: boolean, reduce?: boolean, reduction?: string): Tensor;
      multilabel_margin_loss(
        input: Tensor,
        target: Tensor,
        named: { size_average?: boolean; reduce?: boolean; reduction?: string },
      ): Tensor;
      multilabel_soft_margin_loss(
        input: Tensor,
        target: Tensor,
        weight?: Tensor,
        size_average?: boolean,
        reduce?: boolean,
        reduction?: string,
      ): Tensor;
      multilabel_soft_margin_loss(
        input: Tensor,
        target: Tensor,
        named: { weight?: Tensor; size_average?: boolean; reduce?: boolean; reduction?: string },
      ): Tensor;
      nll_loss(
        input: Tensor,
        target: Tensor,
        weight?: Tensor,
        size_average?: boolean,
        ignore_index?: number,
        reduce?: boolean,
        reduction?: string,
      ): Tensor;
      nll_loss(
        input: Tensor,
        target: Tensor,
        named: { weight?: Tensor; size_average?: boolean; ignore_index?: number; reduce?: boolean; reduction?: string },
      ): Tensor;
      normalize(input: Tensor, p?: number, dim?: number, eps?: number): Tensor;
      normalize(input: Tensor, named: { p?: number; dim?: number; eps?: number }): Tensor;
      one_hot(input: Tensor, num_classes?: number): Tensor;
      one_hot(input: Tensor, named: { num_classes?: number }): Tensor;
      pad(input: Tensor, pad: number | readonly number[], mode?: string, value?: Tensor | number | boolean): Tensor;
      pad(input: Tensor, pad: number | readonly number[], named: { mode?: string; value?: Tensor | number | boolean }): Tensor;
      pairwise_distance(x1: Tensor, x2: Tensor, p?: number, eps?: number, keepdim?: boolean): Tensor;
      pairwise_distance(x1: Tensor, x2: Tensor, named: { p?: number; eps?: number; keepdim?: boolean }): Tensor;
      pdist(input: Tensor, p?: number): Tensor;
      pdist(input: Tensor, named: { p?: number }): Tensor;
      pixel_shuffle(input: Tensor, upscale_factor: number): Tensor;
      pixel_unshuffle(input: Tensor, downscale_factor: number): Tensor;
      poisson_nll_loss(
        input: Tensor,
        target: Tensor,
        log_input?: boolean,
        full?: boolean,
        size_average?: boolean,
        eps?: number,
        reduce?: boolean,
        reduction?: string,
      ): Tensor;
      poisson_nll_loss(
        input: Tensor,
        target: Tensor,
        named: { log_input?: boolean;
          full?: boolean;
          size_average?: boolean;
          eps?: number;
          reduce?: boolean;
          reduction?: string },
      ): Tensor;
      prelu(input: Tensor, weight: Tensor): Tensor;
      relu(input: Tensor, inplace?: boolean): Tensor;
      relu(input: Tensor, named: { inplace?: boolean }): Tensor;
      relu6(input: Tensor, inplace?: boolean): Tensor;
      relu6(input: Tensor, named: { inplace?: boolean }): Tensor;
      rms_norm(input: Tensor, normalized_shape: number | readonly number[], weight?: Tensor, eps?: number): Tensor;
      rms_norm(input: Tensor, normalized_shape: number | readonly number[], named: { weight?: Tensor; eps?: number }): Tensor;
      scaled_dot_product_attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask?: Tensor,
        dropout_p?: number,
        is_causal?: boolean,
        scale?: number,
        enable_gqa?: boolean,
      ): Tensor;
      scaled_dot_product_attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        named: { attn_mask?: Tensor; dropout_p?: number; is_causal?: boolean; scale?: number; enable_gqa?: boolean },
      ): Tensor;
      selu(input: Tensor, inplace?: boolean): Tensor;
      selu(input: Tensor, named: { inplace?: boolean }): Tensor;
      silu(input: Tensor, inplace?: boolean): Tensor;
      silu(input: Tensor, named: { inplace?: boolean }): Tensor;
      smooth_l1_loss(input: Tensor, target: Tensor, size_average?: boolean, reduce?: boolean, reduction?: string, beta?: number): Tensor;
      smooth_l1_loss(
        input: Tensor,
        target: Tensor,
        named: { size_average?: boolean; reduce?: boolean; reduction?: string; beta?: number },
      ): Tensor;
      soft_margin_loss(input: Tensor, target: Tensor, size_average?: boolean, reduce?: boolean, reduction?: string): Tensor;
      soft_margin_loss(input: Tensor, target: Tensor, named: { size_average?: boolean; reduce?: boolean; reduction?: string }): Tensor;
      softmin(input: Tensor, dim: number, dtype?: DType): Tensor;
      softmin(input: Tensor, dim: number, named: { dtype?: DType }): Tensor;
      softplus(input: Tensor, beta?: number, threshold?: number): Tensor;
      softplus(input: Tensor, named: { beta?: number; threshold?: number }): Tensor;
      softshrink(input: Tensor, lambd?: number): Tensor;
      softshrink(input: Tensor, named: { lambd?: number }): Tensor;
      softsign(input: Tensor): Tensor;
      tanhshrink(input: Tensor): Tensor;
      threshold(input: Tensor, threshold: Tensor | number | boolean, value: Tensor | number | boolean, inplace?: boolean): Tensor;
      threshold(
        input: Tensor,
        threshold: Tensor | number | boolean,
        value: Tensor | number | boolean,
        named: { inplace?: boolean },
      ): Tensor;
      triplet_margin_loss(
        anchor: Tensor,
        positive: Tensor,
        negative: Tensor,
        margin?: number,
        p?: number,
        eps?: number,
        swap?: boolean,
        size_average?: boolean,
        reduce?: boolean,
        reduction?: string,
      ): Tensor;
      triplet_margin_loss(
        anchor: Tensor,
        positive: Tensor,
        negative: Tensor,
        named: { margin?: number;
          p?: number;
          eps?: number;
          swap?: boolean;
          size_average?: boolean;
          reduce?: boolean;
          reduction?: string },
      ): Tensor;
      unfold(
        input: Tensor,
        kernel_size: number | readonly number[],
        dilation?: number | readonly number[],
        padding?: number | readonly number[],
        stride?: number | readonly number[],
      ): Tensor;
      unfold(
        input: Tensor,
        kernel_size: number | readonly number[],
        named: { dilation?: number | readonly number[];
          padding?: number | readonly number[];
          stride?: number | readonly number[] },
      ): Tensor;
      upsample_bilinear(input: Tensor, size?: number | readonly number[], scale_factor?: number | readonly number[]): Tensor;
      upsample_bilinear(input: Tensor, named: { size?: number | readonly number[]; scale_factor?: number | readonly number[] }): Tensor;
      upsample_nearest(input: Tensor, size?: number | readonly number[], scale_factor?: number | readonly number[]): Tensor;
      upsample_nearest(input: Tensor, named: { size?: number | readonly number[]; scale_factor?: number | readonly number[] }): Tensor;
    };
  };
  ops: {
    nms(boxes: Tensor, scores: Tensor, iou_threshold: number): [Tensor, Tensor];
    roi_align(
      input: Tensor,
      boxes: Tensor,
      output_size: number | readonly number[],
      spatial_scale?: number,
      sampling_ratio?: number,
      aligned?: boolean,
    ): Tensor;
    roi_align(
      input: Tensor,
      boxes: Tensor,
      output_size: number | readonly number[],
      named: { spatial_scale?: number; sampling_ratio?: number; aligned?: boolean },
    ): Tensor;
  };
  signal: {
    windows: {
      bartlett(M: number, sym?: boolean, dtype?: DType): Tensor;
      bartlett(M: number, named: { sym?: boolean; dtype?: DType }): Tensor;
      blackman(M: number, sym?: boolean, dtype?: DType): Tensor;
      blackman(M: number, named: { sym?: boolean; dtype?: DType }): Tensor;
      cosine(M: number, sym?: boolean, dtype?: DType): Tensor;
      cosine(M: number, named: { sym?: boolean; dtype?: DType }): Tensor;
      exponential(M: number, center?: number, tau?: number, sym?: boolean, dtype?: DType): Tensor;
      exponential(M: number, named: { center?: number; tau?: number; sym?: boolean; dtype?: DType }): Tensor;
      gaussian(M: number, std?: number, sym?: boolean, dtype?: DType): Tensor;
      gaussian(M: number, named: { std?: number; sym?: boolean; dtype?: DType }): Tensor;
      general_cosine(M: number, a: number | readonly number[], sym?: boolean, dtype?: DType): Tensor;
      general_cosine(M: number, a: number | readonly number[], named: { sym?: boolean; dtype?: DType }): Tensor;
      general_hamming(M: number, alpha?: number, sym?: boolean, dtype?: DType): Tensor;
      general_hamming(M: number, named: { alpha?: number; sym?: boolean; dtype?: DType }): Tensor;
      hamming(M: number, sym?: boolean, dtype?: DType): Tensor;
      hamming(M: number, named: { sym?: boolean; dtype?: DType }): Tensor;
      hann(M: number, sym?: boolean, dtype?: DType): Tensor;
      hann(M: number, named: { sym?: boolean; dtype?: DType }): Tensor;
      kaiser(M: number, beta?: number, sym?: boolean, dtype?: DType): Tensor;
      kaiser(M: number, named: { beta?: number; sym?: boolean; dtype?: DType }): Tensor;
      nuttall(M: number, sym?: boolean, dtype?: DType): Tensor;
      nuttall(M: number, named: { sym?: boolean; dtype?: DType }): Tensor;
    };
  };
  special: {
    airy_ai(input: Tensor): Tensor;
    bessel_j0(input: Tensor): Tensor;
    bessel_j1(input: Tensor): Tensor;
    bessel_y0(input: Tensor): Tensor;
    bessel_y1(input: Tensor): Tensor;
    chebyshev_polynomial_t(input: Tensor | number | boolean, n: Tensor | number | boolean): Tensor;
    chebyshev_polynomial_u(input: Tensor | number | boolean, n: Tensor | number | boolean): Tensor;
    chebyshev_polynomial_v(input: Tensor | number | boolean, n: Tensor | number | boolean): Tensor;
    chebyshev_polynomial_w(input: Tensor | number | boolean, n: Tensor | number | boolean): Tensor;
    entr(input: Tensor): Tensor;
    erfcx(input: Tensor): Tensor;
    expit(input: Tensor): Tensor;
    hermite_polynomial_h(input: Tensor | number | boolean, n: Tensor | number | boolean): Tensor;
    hermite_polynomial_he(input: Tensor | number | boolean, n: Tensor | number | boolean): Tensor;
    i0e(input: Tensor): Tensor;
    i1(input: Tensor): Tensor;
    i1e(input: Tensor): Tensor;
    laguerre_polynomial_l(input: Tensor | number | boolean, n: Tensor | number | boolean): Tensor;
    legendre_polynomial_p(input: Tensor | number | boolean, n: Tensor | number | boolean): Tensor;
    log_ndtr(input: Tensor): Tensor;
    modified_bessel_i0(input: Tensor): Tensor;
    modified_bessel_i1(input: Tensor): Tensor;
    modified_bessel_k0(input: Tensor): Tensor;
    modified_bessel_k1(input: Tensor): Tensor;
    ndtr(input: Tensor): Tensor;
    ndtri(input: Tensor): Tensor;
    polygamma(input: Tensor, n: number): Tensor;
    scaled_modified_bessel_k0(input: Tensor): Tensor;
    scaled_modified_bessel_k1(input: Tensor): Tensor;
    shifted_chebyshev_polynomial_t(input: Tensor | number | boolean, n: Tensor | number | boolean): Tensor;
    shifted_chebyshev_polynomial_u(input: Tensor | number | boolean, n: Tensor | number | boolean): Tensor;
    shifted_chebyshev_polynomial_v(input: Tensor | number | boolean, n: Tensor | number | boolean): Tensor;
    shifted_chebyshev_polynomial_w(input: Tensor | number | boolean, n: Tensor | number | boolean): Tensor;
    spherical_bessel_j0(input: Tensor): Tensor;
    xlog1py(input: Tensor | number | boolean, other: Tensor | number | boolean): Tensor;
    zeta(input: Tensor | number | boolean, other: Tensor | number | boolean): Tensor;
  };
  torch: {
    ops: {
      aten: {
        _safe_softmax: {
          default(input: Tensor, dim: number, dtype?: DType): Tensor;
          default(input: Tensor, dim: number, named: { dtype?: DType }): Tensor;
        };
      };
    };
  };
}
