"""Several hosts on one machine: a network namespace each, joined by a switch in another one.

    with Hosts(4, Link(rate_mbit=1000)) as hosts:
        subprocess.run(hosts.on_launcher(["mpirun.openmpi", ...]), env=hosts.environment())
        with hosts.cut(2):
            ...

Addresses live inside the namespaces alone; nothing of the machine's own network is touched. Needs root.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import time
from dataclasses import dataclass, field

AGENT = pathlib.Path(__file__).with_name("agent.sh")
NETWORK = "10.78.0"
LAUNCHER_ADDRESS = f"{NETWORK}.254"
# Each packet costs the delaying program two system calls, and the cores are wanted for the ranks.
DELAY_MTU = 32000


@dataclass(frozen=True)
class Link:
    """Each host's cable. rate 0: unshaped. A delay needs the delay_link program (this kernel's own shaper
    of delays, netem, is not everywhere)."""

    rate_mbit: int = 1000
    round_trip_ms: float = 0

    def __str__(self):
        rate = f"{self.rate_mbit} Mbit/s" if self.rate_mbit else "unshaped"
        return f"{rate}, {self.round_trip_ms:g} ms" if self.round_trip_ms else rate


@dataclass
class Hosts:
    count: int
    link: Link = Link()
    cores: list = field(default_factory=list)  # a taskset list for each host; empty: any core
    delay_link: pathlib.Path | None = None
    ranks_each: int = 1
    slower: dict = field(default_factory=dict)  # by host: how many times as slow as the others it sends
    congestion: str = ""  # control of TCP; empty: this kernel's default
    agent = AGENT

    def __post_init__(self):
        self.name = f"kvr{os.getpid()}"
        self._made = []
        self._delayer = None

    @property
    def ranks(self):
        return self.count * self.ranks_each

    # -- names

    @property
    def switch(self):
        return f"{self.name}-sw"

    def namespace(self, host):
        return f"{self.name}-h{host}"

    def address(self, host):
        return f"{NETWORK}.{host + 1}"

    # -- up and down

    def __enter__(self):
        try:
            self._up()
        except BaseException:
            self._down()
            raise
        return self

    def __exit__(self, *_):
        self._down()

    def _up(self):
        for name in [self.switch] + [self.namespace(h) for h in range(self.count)]:
            _ip("netns", "add", name)
            self._made.append(name)
            _ip("-n", name, "link", "set", "lo", "up")
        if self.link.round_trip_ms:
            self._join_by_delay()
        else:
            self._join_by_switch()

    def _join_by_switch(self):
        _ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", self.switch, "addr", "add", f"{LAUNCHER_ADDRESS}/24", "dev", "br0")
        _ip("-n", self.switch, "link", "set", "br0", "up")
        for host in range(self.count):
            name = self.namespace(host)
            _ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"p{host}", "netns",
                self.switch)
            _ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", self.switch, "link", "set", f"p{host}", "master", "br0", "up")
            if self.congestion:
                _ip("-n", name, "route", "replace", f"{NETWORK}.0/24", "dev", "eth0", "src", self.address(host), "congctl",
                    self.congestion)
            if self.link.rate_mbit:
                kbit = round(1000 * self.link.rate_mbit / self.slower.get(host, 1))
                _run("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate",
                     f"{kbit}kbit", "burst", "256kb", "latency", "50ms")

    def _join_by_delay(self):
        if self.delay_link is None:
            raise RuntimeError("a link with delay needs the program delay_link")
        addresses = {self.switch: LAUNCHER_ADDRESS}
        addresses |= {self.namespace(h): self.address(h) for h in range(self.count)}
        for name, address in addresses.items():
            _ip("-n", name, "tuntap", "add", "dev", "eth0", "mode", "tun")
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "mtu", str(DELAY_MTU), "txqueuelen", "2000", "up")
        link = [str(self.link.rate_mbit), str(self.link.round_trip_ms / 2), "eth0"]
        self._delayer = subprocess.Popen(
            [self.delay_link] + link + [f"{name}:{address}" for name, address in addresses.items()],
            stdout=subprocess.PIPE, text=True, start_new_session=True)
        if self._delayer.stdout.readline() != "ready\n":
            raise RuntimeError("delay_link did not start")

    def _down(self):
        """Ends what still runs in our namespaces, by process number, and removes them."""
        self.kill_all()
        if self._delayer is not None:
            self._delayer.terminate()
            self._delayer.wait()
            self._delayer.stdout.close()
        while self._made:
            subprocess.run(["ip", "netns", "del", self._made.pop()], check=False)

    # -- cables

    @contextlib.contextmanager
    def cut(self, host):
        """Nothing reaches the host, and nothing comes from it, within the `with`."""
        _ip("-n", self.switch, "link", "set", f"p{host}", "down")
        try:
            yield
        finally:
            _ip("-n", self.switch, "link", "set", f"p{host}", "up")

    # -- processes

    def environment(self):
        cores = self.cores or ["-"] * self.count
        return {**os.environ, "KVRING_CLUSTER_NAME": self.name, "KVRING_CLUSTER_CORES": " ".join(cores)}

    def on_launcher(self, command):
        """The command that runs `command` where mpirun runs."""
        return ["ip", "netns", "exec", self.switch] + command

    def processes(self, host=None):
        """{process number: command line} of all that lives in the namespaces, or in that of one host.
        A process that ended and was not waited for does not count."""
        names = self._made if host is None else [self.namespace(host)]
        found = {}
        for name in names:
            command = ["ip", "netns", "pids", name]
            listed = subprocess.run(command, capture_output=True, text=True, check=False)
            for pid in listed.stdout.split():
                text = _command_line(int(pid))
                if text:
                    found[int(pid)] = text
        return found

    def wait_until_empty(self, until):
        """The processes that still live at `until` (of time.monotonic()); at least a moment is given."""
        until = max(until, time.monotonic() + 0.2)
        while (left := self.processes()) and time.monotonic() < until:
            time.sleep(0.02)
        return left

    def kill_all(self):
        for _ in range(100):  # what is killed may just have started another
            left = self.processes()
            if not left:
                return
            for pid in left:
                _kill(pid)
            time.sleep(0.02)


def _command_line(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    except OSError:
        return ""


def _kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def _ip(*arguments):
    _run("ip", *arguments)
