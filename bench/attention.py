#!/usr/bin/env python3
"""kvring beside PyTorch's CPU scaled_dot_product_attention, and the ring attention paper's own package.

Each case has one set of inputs. All contestants run on it in turn, again and again in one process, so that
a noisy machine is unfair to all of them alike; the table gives medians. Errors are the largest against
float64 on some rows, the same rows for all.

Needs the packages kvring (`pip install .`) and torch. The paper's package runs too where `ringattention`
can be imported, on 2 devices of JAX's CPU backend. It is old: version 0.1.2 works with jax 0.4.38 (`pip
install ringattention 'jax[cpu]<0.5'`), through jax.pmap; through shard_map that JAX cannot compile it for
CPUs. JAX takes as many threads as the machine has cores, whatever --threads says.

Cases of --mask: `full`, `causal`; `window`, a causal window of 1024 keys, which PyTorch gets as a mask of
bools; `narrow-v`, full with values of half the head dim. "falls back" marks those for which PyTorch has no
fast kernel: asked for its flash kernel alone, it refuses. Where PyTorch would need more than half of the
memory that is left, it is left out.
"""

import argparse
import dataclasses
import importlib.util
import json
import os
import statistics
import sys
import time
import warnings

DEVICES = 2
HAS_PAPER = all(importlib.util.find_spec(name) for name in ("jax", "ringattention"))
if HAS_PAPER:  # read when JAX is imported
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
    os.environ["JAX_PLATFORMS"] = "cpu"

import kvring
import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
MASKS = ("full", "causal", "window", "narrow-v")
WINDOW = 1024  # keys that a row sees, itself included
SAMPLES = 64
PAPER_CHUNK = 512  # queries and keys at a time; of 256, 512 and 1024 the fastest at n = 8192


@dataclasses.dataclass(frozen=True)
class Case:
    mask: str
    dtype: str
    n: int
    head_dim: int
    heads: int

    @property
    def value_dim(self):
        return self.head_dim // 2 if self.mask == "narrow-v" else self.head_dim

    def inputs(self):
        """Give q, k, v of shape (1, heads, n, dim), as PyTorch has them."""
        generator = torch.Generator().manual_seed(self.n + self.head_dim)
        dims = (self.head_dim, self.head_dim, self.value_dim)
        return [
            torch.randn(1, self.heads, self.n, dim, generator=generator).to(DTYPES[self.dtype])
            for dim in dims
        ]


# A contestant is a function of no arguments that gives (1, heads, n, value_dim), or None where there is none.


def kvring_run(case, q, k, v, threads):
    options = {"causal": case.mask in ("causal", "window"), "threads": threads}
    if case.mask == "window":
        options["window_size"] = (WINDOW - 1, 0)
    arrays = [x.transpose(1, 2) for x in (q, k, v)]
    return lambda: kvring.attention(*arrays, **options).transpose(1, 2)


def torch_options(case):
    if case.mask == "window":
        distance = torch.arange(case.n)[:, None] - torch.arange(case.n)[None, :]
        return {"attn_mask": (distance >= 0) & (distance < WINDOW)}
    return {"is_causal": case.mask == "causal"}


def torch_falls_back(case):
    """Tell whether PyTorch refuses when it may use its fast kernel alone."""
    small = dataclasses.replace(case, n=64)
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they say why, which the case's name does too
            scaled_dot_product_attention(*small.inputs(), **torch_options(small))
    except RuntimeError:
        return True
    return False


def torch_bytes(case):
    """Estimate what PyTorch needs that grows with n squared."""
    square = case.n**2
    scores = 3 * 4 * square * case.heads if torch_falls_back(case) else 0
    return scores + (5 * square + 8 * square if case.mask == "window" else 0)


def available_bytes():
    with open("/proc/meminfo") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


def processor():
    with open("/proc/cpuinfo") as lines:
        return next(
            (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
        )


def torch_run(case, q, k, v, threads):
    if torch_bytes(case) > available_bytes() // 2:
        return None
    torch.set_num_threads(threads)
    options = torch_options(case)
    return lambda: scaled_dot_product_attention(q, k, v, **options)


def paper_run(case, q, k, v, threads):
    if not HAS_PAPER or case.mask not in ("full", "causal") or case.n % (DEVICES * PAPER_CHUNK):
        return None
    import jax
    from ringattention import ringattention

    dtype = {"f32": jax.numpy.float32, "bf16": jax.numpy.bfloat16, "f16": jax.numpy.float16}[case.dtype]
    blockwise = {
        "causal_block_size": 1 if case.mask == "causal" else None,
        "query_chunk_size": PAPER_CHUNK,
        "key_chunk_size": PAPER_CHUNK,
        "deterministic": True,
        "dropout_rng": None,
        "attn_pdrop": 0.0,
        "dtype": dtype,
        "policy": jax.checkpoint_policies.nothing_saveable,
        "precision": None,
        "prevent_cse": False,
    }

    def shards(x):  # (device, batch, tokens of its own, heads, dim), each on its device
        x = x.transpose(1, 2).float().numpy().reshape(1, DEVICES, -1, case.heads, x.shape[-1])
        return jax.pmap(lambda own: own.astype(dtype))(np.ascontiguousarray(x.swapaxes(0, 1)))

    arrays = [shards(x) for x in (q, k, v)]
    attend = jax.pmap(
        lambda q, k, v: ringattention(q, k, v, None, None, None, "ring", True, blockwise), axis_name="ring"
    )

    def run():
        out = attend(*arrays).block_until_ready()
        return lambda: (
            torch.from_numpy(np.array(out.astype("float32")))
            .reshape(1, case.n, case.heads, case.head_dim)
            .transpose(1, 2)
        )

    return run


def sampled_rows(case):
    rng = np.random.default_rng(case.n)
    rows = [(int(rng.integers(case.heads)), int(rng.integers(case.n))) for _ in range(SAMPLES - 2)]
    return [(0, 0), *rows, (case.heads - 1, case.n - 1)]


def float64_row(case, arrays, head, row):
    q, k, v = (x[0, head] for x in arrays)
    first = max(0, row - WINDOW + 1) if case.mask == "window" else 0
    last = row + 1 if case.mask in ("causal", "window") else case.n
    logits = k[first:last].double() @ q[row].double() / case.head_dim**0.5
    return torch.softmax(logits, 0) @ v[first:last].double()


def largest_error(case, expected, out):
    out = out() if callable(out) else out  # the paper's is brought back outside of the time taken
    return max(
        float((out[0, head, row].double() - value).abs().max()) for (head, row), value in expected.items()
    )


def measure(case, threads, repeat):
    arrays = case.inputs()
    contestants = {"kvring": kvring_run, "torch": torch_run, "paper": paper_run}
    runs = {name: make(case, *arrays, threads) for name, make in contestants.items()}
    runs = {name: run for name, run in runs.items() if run}
    expected = {place: float64_row(case, arrays, *place) for place in sampled_rows(case)}
    errors = {name: largest_error(case, expected, run()) for name, run in runs.items()}  # warms up too
    seconds = {name: [] for name in runs}
    for _ in range(repeat):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    row = dataclasses.asdict(case) | {"value_dim": case.value_dim, "torch_falls_back": torch_falls_back(case)}
    for name in contestants:
        row |= {f"{name}_s": medians.get(name), f"{name}_largest_error": errors.get(name)}
    for name in ("torch", "paper"):
        row[f"{name}_over_kvring"] = medians[name] / medians["kvring"] if name in medians else None
    return row


COLUMNS = {
    "mask": "{mask:9}",
    "dtype": "{dtype:5}",
    "d": "{head_dim:4}",
    "n": "{n:6}",
    "kvring s": "{kvring_s:9.4f}",
    "torch s": "{torch_s:9.4f}",
    "torch/kvring": "{torch_over_kvring:12.2f}",
    "kvring err": "{kvring_largest_error:10.1e}",
    "torch err": "{torch_largest_error:10.1e}",
}
PAPER_COLUMNS = {
    "paper s": "{paper_s:9.4f}",
    "paper/kvring": "{paper_over_kvring:12.2f}",
    "paper err": "{paper_largest_error:10.1e}",
}


class Blank(float):
    """What was not measured, in any column."""

    def __format__(self, spec):
        return "-".rjust(int(spec.partition(".")[0]))


def print_line(columns, row):
    shown = {key: Blank() if value is None else value for key, value in row.items()}
    note = "  falls back" if row["torch_falls_back"] else ""
    if row["torch_s"] is None:
        note += "  torch would need too much memory"
    print(" ".join(form.format(**shown) for form in columns.values()) + note, flush=True)


def print_head(columns):
    widths = [int(form.split(":")[1].split(".")[0].rstrip("}")) for form in columns.values()]
    names = [name.ljust(w) if i < 2 else name.rjust(w) for i, (name, w) in enumerate(zip(columns, widths))]
    print(" ".join(names), flush=True)


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--n", type=int, nargs="+", default=[2048, 8192, 32768], help="tokens")
    parser.add_argument("--head-dim", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--heads", type=int, default=1)
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=["f32", "bf16"])
    parser.add_argument("--mask", nargs="+", choices=MASKS, default=["full", "causal"])
    parser.add_argument(
        "--threads", type=int, default=cores, help=f"of kvring and of PyTorch (default {cores})"
    )
    parser.add_argument(
        "--repeat", type=int, default=5, help="timed runs of each, after one that is not timed"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    host = {
        "kvring": kvring.__version__,
        "isa": kvring.info()["isa"],
        "torch": torch.__version__,
        "torch_cpu": torch.backends.cpu.get_cpu_capability(),
        "processor": processor(),
        "threads": options.threads,
    }
    columns = COLUMNS | PAPER_COLUMNS if HAS_PAPER else COLUMNS
    if not options.json:
        print(", ".join(f"{key} {value}" for key, value in host.items()) + f", heads {options.heads}")
        print_head(columns)
    rows = []
    for mask in options.mask:
        for dtype in options.dtype:
            for head_dim in options.head_dim:
                for n in options.n:
                    rows.append(
                        measure(
                            Case(mask, dtype, n, head_dim, options.heads), options.threads, options.repeat
                        )
                    )
                    if not options.json:
                        print_line(columns, rows[-1])
    if options.json:
        print(json.dumps({"schema_version": 1, "host": host, "rows": rows}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
