// e^x and the activations over the vector words of whichever tier was included before.
// exponential: within 2 units in the last place where the result is in [1.2e-38, 1.6e38]; 0 below, infinity
// above, NaN stays.
// Every lane does the same operations, so a value's result does not depend on where it stands.
#pragma once

namespace {

MLXCEL_INLINE F exponential(F x) {
  const F lowest = set1(-87.33654f), highest = set1(88.02f);
  const F bounded = clamp(lowest, x, highest);
  const I n = to_int(mul(bounded, set1(1.44269504f)));
  const F whole = to_float(n);
  // r = x - n ln 2 in two parts, |r| <= 0.3466
  const F r = fma(whole, set1(2.12194440e-4f), fma(whole, set1(-0.693359375f), bounded));
  F p = set1(1.9875691500e-4f);
  p = fma(p, r, set1(1.3981999507e-3f));
  p = fma(p, r, set1(8.3334519073e-3f));
  p = fma(p, r, set1(4.1665795894e-2f));
  p = fma(p, r, set1(1.6666665459e-1f));
  p = fma(p, r, set1(5.0000001201e-1f));
  p = add(fma(p, mul(r, r), r), set1(1.0f));
  const F scaled = mul(p, from_bits(shift_left<23>(add_i(n, set1_i(127)))));
  return where_less(x, lowest, zero(), where_less(highest, x, set1(__builtin_inff()), scaled));
}

MLXCEL_INLINE F negate(F x) { return sub(zero(), x); }

/// 1 / (1 + e^-x)
MLXCEL_INLINE F sigmoid(F x) { return div(set1(1.0f), add(set1(1.0f), exponential(negate(x)))); }

/// x times the normal distribution function, by W. J. Cody's and Numerical Recipes' form of erfc
/// (relative error 1.2e-7).
MLXCEL_INLINE F gelu(F x) {
  const F z = mul(magnitude(x), set1(0.70710678f));
  const F t = div(set1(1.0f), fma(set1(0.5f), z, set1(1.0f)));
  F p = set1(0.17087277f);
  p = fma(p, t, set1(-0.82215223f));
  p = fma(p, t, set1(1.48851587f));
  p = fma(p, t, set1(-1.13520398f));
  p = fma(p, t, set1(0.27886807f));
  p = fma(p, t, set1(-0.18628806f));
  p = fma(p, t, set1(0.09678418f));
  p = fma(p, t, set1(0.37409196f));
  p = fma(p, t, set1(1.00002368f));
  p = fma(p, t, set1(-1.26551223f));
  const F half_erfc = mul(mul(set1(0.5f), t), exponential(sub(p, mul(z, z))));
  return mul(x, where_less(x, zero(), half_erfc, sub(set1(1.0f), half_erfc)));
}

/// 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
MLXCEL_INLINE F gelu_tanh(F x) {
  const F cube = mul(mul(x, x), x);
  const F twice = mul(set1(1.59576912f), fma(set1(0.044715f), cube, x));
  return div(x, add(set1(1.0f), exponential(negate(twice))));
}

MLXCEL_INLINE F silu(F x) { return div(x, add(set1(1.0f), exponential(negate(x)))); }

/// (1 - e^-2x) / (1 + e^-2x), within 2e-7 of one.
MLXCEL_INLINE F hyperbolic_tangent(F x) { return fma(set1(2.0f), sigmoid(add(x, x)), set1(-1.0f)); }

/// log(1 + e^x) = max(x, 0) + log(1 + t), t = e^-|x|; the logarithm as 2 atanh(t / (2 + t)), of at most 1/3.
MLXCEL_INLINE F softplus(F x) {
  const F t = exponential(negate(magnitude(x)));
  const F s = div(t, add(t, set1(2.0f))), square = mul(s, s);
  F p = set1(1.0f / 15.0f);
  p = fma(p, square, set1(1.0f / 13.0f));
  p = fma(p, square, set1(1.0f / 11.0f));
  p = fma(p, square, set1(1.0f / 9.0f));
  p = fma(p, square, set1(1.0f / 7.0f));
  p = fma(p, square, set1(1.0f / 5.0f));
  p = fma(p, square, set1(1.0f / 3.0f));
  p = fma(p, square, set1(1.0f));
  return fma(add(s, s), p, where_less(x, zero(), zero(), x));
}

/// Codes of kernels::Activation.
enum { kNone, kSilu, kGelu, kGeluTanh, kRelu, kRelu2, kSigmoid, kTanh, kSoftplus, kExp };

MLXCEL_INLINE F activated(F x, int kind) {
  switch (kind) {
    case kSilu:
      return silu(x);
    case kGelu:
      return gelu(x);
    case kGeluTanh:
      return gelu_tanh(x);
    case kRelu:
      return where_less(x, zero(), zero(), x);
    case kRelu2: {
      const F positive = where_less(x, zero(), zero(), x);
      return mul(positive, positive);
    }
    case kSigmoid:
      return sigmoid(x);
    case kTanh:
      return hyperbolic_tangent(x);
    case kSoftplus:
      return softplus(x);
    case kExp:
      return exponential(x);
    default:
      return x;
  }
}

}  // namespace
