"""What the package says of itself: version, examples, types."""

import ast
import doctest
import importlib.util
import pathlib
import re
import subprocess
import sys

import kvring
import pytest

PACKAGE = pathlib.Path(kvring.__file__).parent
ROOT = pathlib.Path(__file__).parents[2]


def test_version_is_that_of_the_project():
    assert kvring.__version__ == (ROOT / "VERSION").read_text().strip()
    info = kvring.info()
    assert info["version"] == kvring.__version__ and info["isa"] in info["supported_isas"]


def test_all_that_is_exported_is_there():
    assert all(hasattr(kvring, name) for name in kvring.__all__)


@pytest.mark.parametrize("module", ["kvring", "kvring._attention"])
def test_examples_in_docstrings(module):
    result = doctest.testmod(sys.modules[module])
    assert result.attempted > 0 and result.failed == 0


def python_blocks(page):
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_examples_in_pages(page):
    blocks = python_blocks(page)
    assert blocks
    for block in blocks:
        if "import torch" not in block or importlib.util.find_spec("torch"):
            exec(compile(block, page, "exec"), {})


def test_importing_kvring_imports_nothing_large():
    code = "import sys, kvring; print(sorted({'torch', 'jax', 'ml_dtypes'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_stubs_are_python():
    for name in ("__init__.pyi", "_core.pyi"):
        ast.parse((PACKAGE / name).read_text())
    assert (PACKAGE / "py.typed").exists()


# A program of a user, as mypy is to see it.
USER = """
from typing import assert_type

import kvring
import numpy as np
from numpy.typing import NDArray

q: NDArray[np.float32] = np.zeros((1, 8, 2, 4), np.float32)
assert_type(kvring.attention(q, q, q, causal=True, window_size=(3, 0)), NDArray[np.float32])
out, lse = kvring.attention(q, q, q, return_lse=True, sinks=[0.0, 1.0])
assert_type(kvring.info()["isa"], str)
error: ValueError = kvring.InvalidArgument()
kvring.attention(q, q, q, layout="zig")  # type: ignore[call-overload]
"""


def run(*command):
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_types(tmp_path):
    pytest.importorskip("mypy")
    program = tmp_path / "user.py"
    program.write_text(USER)
    run("mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program))


def test_stubs_agree_with_what_they_describe(tmp_path, monkeypatch):
    pytest.importorskip("mypy")
    monkeypatch.chdir(tmp_path)
    run(
        "mypy.stubtest",
        "kvring",
        "--allowlist",
        str(pathlib.Path(__file__).parent / "stubtest_allowlist.txt"),
    )
