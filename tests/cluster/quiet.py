"""How much of the machine others used while something was measured: times from a busy one say nothing."""

import ctypes
import os
import pathlib
import resource
import time

# Of all cores. The kernel's own work and a shell or two stay below.
LARGEST_FOREIGN_SHARE = 0.08


_PR_SET_CHILD_SUBREAPER = 36


class ForeignLoad:
    """Whatever is started within the `with` must end in it: only then does its processor time count as ours.

    The time that the kernel spends on packets in interrupts is nobody's.
    """

    def __enter__(self):
        # mpirun leaves before its daemons, to which the ranks' time is accounted: they become our children.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._began = self._now()
        return self

    def __exit__(self, *_):
        _reap_children()
        wall_s, all_s, own_s = (end - began for end, began in zip(self._now(), self._began))
        self.share = max(0.0, all_s - own_s) / (wall_s * os.cpu_count())

    @staticmethod
    def _now():
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _, _, _, _, steal = map(int, file.readline().split()[1:9])
        all_s = (user + nice + system + steal) / os.sysconf("SC_CLK_TCK")
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return time.monotonic(), all_s, sum(usage.ru_utime + usage.ru_stime for usage in used)


def wait_until_quiet(most_s=20):
    """Returns when others leave the machine alone for half a second, or after `most_s`."""
    end = time.monotonic() + most_s
    while time.monotonic() < end:
        with ForeignLoad() as others:
            time.sleep(0.5)
        if others.share <= LARGEST_FOREIGN_SHARE:
            return


def _reap_children():
    end = time.monotonic() + 2
    for pid in pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split():
        try:
            while time.monotonic() < end and os.waitpid(int(pid), os.WNOHANG)[0] == 0:
                time.sleep(0.01)
        except ChildProcessError:
            pass  # waited for by whoever started it
