// How far float32 attention may be from the float64 reference: a bound that is proved, not fitted. It does
// not depend on the number of ranks, the layout or the order of tiles.
//
// Notation: u = 2^-24 is the rounding of one float32 operation, |x^ - x| <= u |x|; everything below is to
// be read with errors added up in absolute value.
//
// Logit. A dot product is one chain of head_dim fused multiply-adds, and its product with the rounded
// scale adds 2 more roundings, so a logit (natural units) is off by at most
//     delta = (head_dim + 3) u * |scale| sum |q_d k_d|,
// the +3 instead of +2 paying for products of errors. A sink is rounded twice, which the same term covers.
// Softcap passes delta on (tanh has slope at most 1) and adds 12 u * softcap: 8 u for tanh itself, 4 for
// the roundings around it. Where numbers underflow each operation may also lose 2^-150 in absolute terms.
//
// Weight. p = exp(logit - m) by a polynomial of relative error 2^-22 in at most 16 roundings, scaled by an
// exact power of two; in two such steps, to the largest of its tile and from there to a whole number: off by
// a factor of exp(+-delta) and by a = (1 + 16 u + 2^-22)^2 (1 + u) - 1 of p.
//
// Sums. Within a tile, numerator and denominator are chains of at most n = min(tile, kv_len) terms:
//     gamma = n u / (1 - n u).
// Between T tiles the reproducible sum drops less than 2^-30 of the largest tile per tile; the online sum
// rounds twice per tile. So numerator N = sum p v and denominator D = sum p are off by
//     r = (1 + a) (1 + gamma) (1 + t) - 1 + 2 kv_len lost    from arithmetic, t = T 2^-30 or 2 T u,
//     e = exp(delta) (1 + r) - 1                             with the logits,
// of sum p|v| and of D (and of t times the largest |v|, which tells how large the largest tile can be). With
// the bfloat16 products the weights of N are rounded to 8 digits: r_v = (1 + r) (1 + 2^-8) - 1 and e_v of r_v
// take the place of r and e there; sums in blocks round no term more often than a chain does.
//
// Quotient. |N^/D^ - N/D| <= (e_v sum p|v| / D + e |N/D|) / (1 - e) <= (e_v + e) / (1 - e) weighted_abs_v;
// and since both are means of the same values, up to the rounding of weights, <= ((1 + r_v) / (1 - r) + 1)
// max|v| however wrong the logits are: the smaller holds. Then 4 u |out| for the division and what follows,
// and half a unit in the last place of out_dtype. Weights below `lost` of the largest of their tile vanish
// (2^-126; 2^-55 with the bfloat16 products): kv_len 2 lost max|v|; and 2^-148 per term where v is tiny.
//
// LSE = m + ln(l): l is off by exp(+-delta) and r, and log2, the sum and the change of base by 4 u each.
#pragma once

#include <cstdint>

#include "kvring/problem.h"
#include "reference/reference.h"

namespace kvring {

// The largest |out - row.out[dim]| that is not a fault; 0 where a NaN or an infinity is expected. Infinite
// when float32 may overflow on the way to it.
double out_bound(const Problem& problem, const ReferenceRow& row, std::int64_t dim);
// The same for |lse - row.lse|.
double lse_bound(const Problem& problem, const ReferenceRow& row);

// Whether `got` is right: within the bound, or NaN or the same infinity where that is expected. Everything
// is right when the bound is infinite.
bool matches(double got, double expected, double bound) noexcept;

}  // namespace kvring
