#!/usr/bin/env python3
"""Two ways to cut a term into slices, shuffled: python3 docs/experiments/tie_bit.py

Prints, for several widths of a bin, how many of 4,000 random sums had another raw state (hi, lo) after a
shuffle of their terms. "tie bit": the last bit of the term is set once, then it is added to the running sums.
"pure": (term + C) - C with a constant C, as kvring does it. Python's floats are float64, rounded to nearest
even. Needs nothing but Python.
"""
import math
import random
import struct


def with_last_bit(x):
    (bits,) = struct.unpack("Q", struct.pack("d", x))
    return struct.unpack("d", struct.pack("Q", bits | 1))[0]


def total(terms, width, pure):
    """(bin, hi, lo) of the terms in this order; both sums stand on a constant of 1.5 * 2^52 units."""
    top, primes, sums = None, None, None
    for term in terms:
        needed = math.ceil((math.frexp(term)[1] + 1) / width)
        if top is None or needed > top:
            unit = 2.0 ** (width * (needed - 1))
            new = [1.5 * 2**52 * unit, 1.5 * 2**52 * unit * 2.0**-width]
            sums = [new[0], sums[0] if top == needed - 1 else new[1]]
            top, primes = needed, new
        rest = term if pure else with_last_bit(term)
        for i in range(2):
            base = primes[i] if pure else sums[i]
            piece = (base + rest) - base
            sums[i] += piece
            rest -= piece
    return top, *sums


def random_term(rng):
    digits = rng.choice([1, 3, 2**24 - 1, rng.randrange(1, 2**24)])
    return rng.choice([1, -1]) * math.ldexp(digits, rng.randint(-60, 60) - 24)


if __name__ == "__main__":
    print("width  tie bit  pure")
    for width in (20, 24, 26, 27, 28, 32):
        rng = random.Random(width)
        differ = [0, 0]
        for _ in range(4000):
            terms = [random_term(rng) for _ in range(rng.randint(2, 30))]
            shuffled = rng.sample(terms, len(terms))
            for pure in (False, True):
                differ[pure] += total(terms, width, pure) != total(shuffled, width, pure)
        print(f"{width:>5} {differ[False]:>8} {differ[True]:>5}")
