"""What the hosts compute: a problem with its input file, and runs of it in one process, without a network."""

import json
import pathlib
import subprocess
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    tokens: int
    heads: int
    dtype: str = "f32"
    causal: bool = False
    head_dim: int = 128
    kv_tokens: int = 0  # 0: as many as queries

    def __str__(self):
        over = f" over {self.kv_tokens} keys" if self.kv_tokens else ""
        return f"{self.tokens} tokens{over}, {self.heads} heads, {self.dtype}{', causal' if self.causal else ''}"


@dataclass(frozen=True)
class Workbench:
    """The program under test, and the folder for everything that the tests write."""

    kvring: pathlib.Path
    folder: pathlib.Path
    delay_link: pathlib.Path

    def attend(self, problem, *flags):
        """The command line of `kvring attend` on the problem, with its input generated."""
        command = [str(self.kvring), "attend", "--input", str(self._input_of(problem)), "--json", "--quiet"]
        return command + (["--causal"] if problem.causal else []) + [str(flag) for flag in flags]

    def run(self, command, timeout_s=300, environment=None):
        """What a command on this machine, not on a played host, prints with --json."""
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=environment,
                              check=False)
        if done.returncode != 0:
            raise RuntimeError(f"exit {done.returncode} of {' '.join(command)}\n{done.stderr}")
        return json.loads(done.stdout)

    def new_folder(self, name):
        for number in range(10000):
            path = self.folder / f"{name}-{number}"
            if not path.exists():
                path.mkdir()
                return path
        raise RuntimeError(f"too many folders {name}")

    def _input_of(self, problem):
        keys = problem.kv_tokens or problem.tokens
        name = f"{problem.tokens}-{keys}-{problem.heads}-{problem.head_dim}-{problem.dtype}.safetensors"
        path = self.folder / name
        if not path.exists():
            shape = f"1,{problem.tokens},{problem.heads},{problem.head_dim}"
            kv_shape = f"1,{keys},{problem.heads},{problem.head_dim}"
            subprocess.run([self.kvring, "generate", "--shape", shape, "--kv-shape", kv_shape, "--dtype", problem.dtype, "--quiet",
                            "-o", path], check=True)
        return path
