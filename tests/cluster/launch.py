"""One job of mpirun on played hosts: its command line, what each rank wrote and when, and how it ended."""

import json
import os
import pathlib
import signal
import subprocess
import threading
import time
from dataclasses import dataclass

# By these alone mpirun notices that a host is gone; by default, after eight minutes. It looks each second, and
# gives a host up five seconds after the first look without an answer: 5 to 6 s after a cut. Outages of up to
# four seconds are survived: the last of five looks is then answered. (With 3, 1 and 3, which also notices within
# 6 s, every third outage of 3 s ended the job, because all three looks fell into it.)
KEEPALIVE = {"oob_tcp_keepalive_time": 1, "oob_tcp_keepalive_intvl": 1, "oob_tcp_keepalive_probes": 5}

# Two connections between hosts. With one, blocks that pass each other on it take turns: two ranks, each of which
# sends to the other, got half of the wire.
LINKS = {"btl_tcp_links": 2}

# Each rank writes its messages to a file of its own: a host that is cut off cannot pass them on to mpirun.
RANK_SHELL = 'exec "$@" 2>"$KVRING_CLUSTER_FOLDER/rank-$OMPI_COMM_WORLD_RANK.err"'


def open_mpi_command(hosts, command, mca=None):
    network = f"{hosts.address(0).rsplit('.', 1)[0]}.0/24"
    parameters = {
        "plm_rsh_agent": hosts.agent,
        "pml": "ob1",
        "btl": "tcp,self",
        "btl_tcp_if_include": network,
        "oob_tcp_if_include": network,
        **KEEPALIVE,
        **LINKS,
        **(mca or {}),
    }
    flags = [word for name, value in parameters.items() for word in ("--mca", name, str(value))]
    places = ",".join(f"{hosts.address(h)}:{hosts.ranks_each}" for h in range(hosts.count))
    start = ["mpirun.openmpi", "-np", str(hosts.ranks), "-H", places, "--bind-to", "none"]
    return start + flags + ["-x", "KVRING_CLUSTER_FOLDER", "/bin/sh", "-c", RANK_SHELL, "sh"] + command


@dataclass(frozen=True)
class Line:
    time: float  # of time.monotonic()
    text: str


class Job:
    """Started by its constructor; `finish` waits for its end. Everything it writes is under `folder`."""

    def __init__(self, hosts, command, folder, mca=None):
        self.hosts = hosts
        self.command = command
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        (self.folder / "tmp").mkdir()
        environment = {
            **hosts.environment(),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "KVRING_CLUSTER_FOLDER": str(self.folder),
            "TMPDIR": str(self.folder / "tmp"),
        }
        self.began = time.monotonic()
        self.ended = None
        with open(self.folder / "stdout", "wb") as out, open(self.folder / "stderr", "wb") as err:
            self._mpirun = subprocess.Popen(
                hosts.on_launcher(open_mpi_command(hosts, command, mca)),
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, start_new_session=True)
        names = {"launcher": "stderr", **{rank: f"rank-{rank}.err" for rank in range(hosts.ranks)}}
        self._logs = {who: _Log(self.folder / name) for who, name in names.items()}
        self._stop = threading.Event()
        self._follower = threading.Thread(target=self._follow, daemon=True)
        self._follower.start()

    def lines(self, who):
        """What `who`, a rank or "launcher", wrote to its stderr so far."""
        return list(self._logs[who].lines)

    def messages(self):
        """All that was written to stderr, for a person to read."""
        return "\n".join(f"{who}: {line.text}" for who in self._logs for line in self.lines(who))

    def running(self):
        return self.ended is None

    def rank_process(self, rank):
        """The process number of a rank, or None when it has none (yet, or any more)."""
        for pid, command in self.hosts.processes(rank).items():
            if "kvring" in pathlib.Path(command.split()[0]).name:
                return pid
        return None

    def finish(self, timeout_s):
        """Waits for mpirun; after `timeout_s` it is killed. Returns its exit status, None when killed."""
        end = time.monotonic() + timeout_s
        while self.running() and time.monotonic() < end:
            time.sleep(0.02)
        status = self._mpirun.returncode if not self.running() else None
        if status is None:
            os.killpg(self._mpirun.pid, signal.SIGKILL)  # a session of its own: mpirun and its agents
        self._mpirun.wait()
        self._stop.set()
        self._follower.join()
        return status

    def finished_result(self, timeout_s):
        """result(), once mpirun has ended. Raises RuntimeError where it did not end well."""
        if (status := self.finish(timeout_s)) != 0:
            raise RuntimeError(f"mpirun ended with {status}: {' '.join(map(str, self.command))}\n{self.messages()}")
        return self.result()

    def result(self):
        """What rank 0 printed with --json."""
        return json.loads((self.folder / "stdout").read_text())

    def _follow(self):
        while True:
            last = self._stop.is_set()
            if self.ended is None and self._mpirun.poll() is not None:
                self.ended = time.monotonic()
            for log in self._logs.values():
                log.read()
            if last:
                return
            self._stop.wait(0.01)


class _Log:
    """A file that grows, read line by line with the time at which each line was seen."""

    def __init__(self, path):
        self._path = path
        self._file = None
        self._rest = b""
        self.lines = []

    def read(self):
        if self._file is None:
            try:
                self._file = open(self._path, "rb")
            except FileNotFoundError:
                return
        new = self._file.read()
        if not new:
            return
        *whole, self._rest = (self._rest + new).split(b"\n")
        now = time.monotonic()
        self.lines += [Line(now, line.decode(errors="replace")) for line in whole]
