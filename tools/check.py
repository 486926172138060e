"""Does a capture say what the layer did? Plain causal attention in float64 over it, against the layer."""

import math

import torch

UNIT = 2.0**-24  # unit roundoff of float32, in which the model ran
# torch's attention on CPUs may use an exponential that is good to 20 bits only.
EXP_ERROR = 2.0**-20


def causal_attention(q, k, v, softmax_scale, rows=512):
    """q, k, v: (1, n, heads, d). Returns out (1, n, q heads, d_v) in float64 and the extremes of the visible
    scaled logits (smallest, largest). By blocks of rows, so that memory stays at rows x n."""
    q, k, v = (t[0].double() for t in (q, k, v))
    group = q.shape[1] // k.shape[1]
    n = q.shape[0]
    out = torch.empty(n, q.shape[1], v.shape[2], dtype=torch.float64)
    smallest, largest = math.inf, -math.inf
    for head in range(q.shape[1]):
        keys, values = k[:, head // group], v[:, head // group]
        for begin in range(0, n, rows):
            end = min(begin + rows, n)
            logits = (q[begin:end, head] @ keys[:end].T) * softmax_scale
            hidden = torch.arange(end)[None, :] > torch.arange(begin, end)[:, None]
            smallest = min(smallest, logits.masked_fill(hidden, math.inf).min().item())
            largest = max(largest, logits.masked_fill(hidden, -math.inf).max().item())
            out[begin:end, head] = torch.softmax(logits.masked_fill(hidden, -math.inf), dim=-1) @ values[:end]
    return out[None], smallest, largest


def tolerance(layer):
    """How far the layer's float32 attention may be from exact attention over the same q, k and v.

    A logit is a sum of d products, off by at most (d + 2) u |q| |k| scale (Cauchy-Schwarz; u the unit
    roundoff); that and the exponential's own error are relative errors of each weight. Summing n weights and
    n weighted values, in any order, adds n u each. All of it counts twice, in numerator and denominator.
    """
    n, d = layer.q.shape[1], layer.q.shape[3]
    largest_logit = (layer.q.norm(dim=-1).max() * layer.k.norm(dim=-1).max()).item() * layer.softmax_scale
    weight_error = (d + 2) * UNIT * largest_logit + EXP_ERROR
    return 2 * (weight_error + n * UNIT) * layer.v.abs().max().item()


def compare(layer, stored):
    """`stored`: the (q, k, v) that will be written. Returns the numbers that the side file records."""
    exact, _, _ = causal_attention(layer.q, layer.k, layer.v, layer.softmax_scale)
    rounded, smallest, largest = causal_attention(*stored, layer.softmax_scale)
    return {
        "largest_error": (exact - layer.out).abs().max().item(),
        "tolerance": tolerance(layer),
        "largest_output": layer.out.abs().max().item(),
        "largest_change_by_storage_dtype": (rounded - exact).abs().max().item(),
        "smallest_visible_logit": smallest,
        "largest_visible_logit": largest,
    }
