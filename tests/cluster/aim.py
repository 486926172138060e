"""When a rank is in the middle of a step: told by the processor time that its computing thread has used,
which other work on the machine hardly changes."""

import pathlib
import time
from dataclasses import dataclass

POLL_S = 0.005


def processor_s(pid):
    """Of the first thread, which computes when --threads is 1; None when the process is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/task/{pid}/schedstat").read_text(encoding="ascii")
        return int(text.split()[0]) / 1e9
    except (OSError, IndexError):
        return None


def watch(pid):
    """[(time.monotonic(), processor_s)] until the process is gone."""
    samples = []
    while (used := processor_s(pid)) is not None:
        samples.append((time.monotonic(), used))
        time.sleep(POLL_S)
    return samples


@dataclass
class Aim:
    steps: int
    first_step_s: float  # processor time before it
    step_s: float

    @classmethod
    def from_samples(cls, samples, attention_s, steps):
        """Of a run without a fault, in which the attention took the last `attention_s` but for the writing of
        the output and the end of MPI."""
        after_s = 0.2
        end, total = samples[-1]
        before = [used for when, used in samples if when < end - after_s - attention_s]
        first_step_s = before[-1] if before else 0.0
        return cls(steps, first_step_s, (total - first_step_s) / steps)

    def wait_for(self, step, pid):
        """Until the process is in the middle of the step; False when it had ended before."""
        while (used := processor_s(pid)) is not None:
            if used >= self.first_step_s + (step + 0.5) * self.step_s:
                return True
            time.sleep(POLL_S)
        return False

    def learn(self, aimed, hit):
        """The shot at step `aimed` fell into `hit`, or beyond the last one."""
        self.first_step_s = max(0.0, self.first_step_s - 0.4 * (hit - aimed) * self.step_s)
