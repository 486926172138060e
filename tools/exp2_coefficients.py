#!/usr/bin/env python3
"""Finds the coefficients of the kernel's exp2 polynomial: python3 tools/exp2_coefficients.py

Minimises the largest relative error of 1 + c1 f + ... + c5 f^5 against 2^f on [-0.5, 0.5] (p(0) = 1, so that
weights of powers of two are exact), rounds to float32 and prints the error that remains in float64 arithmetic.
Needs nothing but Python.
"""
import math
import struct

DEGREE = 5


def solve(a, b):
    """Gaussian elimination with partial pivoting."""
    n = len(b)
    m = [row[:] + [y] for row, y in zip(a, b)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(m[r][i]))
        m[i], m[pivot] = m[pivot], m[i]
        for r in range(n):
            if r != i:
                f = m[r][i] / m[i][i]
                m[r] = [x - f * y for x, y in zip(m[r], m[i])]
    return [m[i][n] / m[i][i] for i in range(n)]


def error(c, f):
    return (1 + sum(ck * f ** (k + 1) for k, ck in enumerate(c))) / 2**f - 1


def minimax():
    """Lawson's algorithm: least squares, weights multiplied by the error until the largest error is smallest."""
    grid = [0.5 * math.cos(math.pi * i / 600) for i in range(601)]
    grid = [f for f in grid if f != 0]
    basis = [[f ** (k + 1) / 2**f for k in range(DEGREE)] for f in grid]
    target = [1 - 2**-f for f in grid]
    weights = [1.0] * len(grid)
    best, best_error = None, math.inf
    for _ in range(400):
        a = [[sum(w * r[i] * r[j] for w, r in zip(weights, basis)) for j in range(DEGREE)] for i in range(DEGREE)]
        b = [sum(w * r[i] * y for w, r, y in zip(weights, basis, target)) for i in range(DEGREE)]
        c = solve(a, b)
        e = [abs(error(c, f)) for f in grid]
        if max(e) < best_error:
            best, best_error = c, max(e)
        weights = [w * x for w, x in zip(weights, e)]
        total = sum(weights)
        weights = [w / total for w in weights]
    return best


def float32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


if __name__ == "__main__":
    rounded = [float32(x) for x in minimax()]
    worst = max(abs(error(rounded, -0.5 + i / 100000)) for i in range(100001))
    for k, x in enumerate(rounded):
        print(f"c{k + 1} = {x.hex()}  {x:.10e}")
    print(f"largest relative error {worst:.3e} = 2^{math.log2(worst):.2f}")
