#!/usr/bin/env python3
"""Compares kvring simulate with SimGrid's SMPI, under which the real library runs.

    apt-get install libsimgrid-dev
    python3 tests/simgrid/check.py build/simgrid [RANKS ...] [--schedules ring ...] [--per-node 1 ...] [--faster X]

Builds kvring and a small program on it (ring.cc) with smpicxx into the folder, writes SimGrid platforms for the machine of
slow_network.json, and prints the seconds of both for RANKS ranks (default 4 16). Computing takes no time on
either side (smpi/simulate-computation:no), so what is compared are the waits and transfers. A rank that waits looks every
0.3 ms, and SimGrid takes its time for each look: many ranks want links that are X times as fast.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
SCHEDULES = ("ring", "all-gather", "pass-q", "tree")
TOKENS, HEADS, DIM, LAYERS = 512, 2, 16, 1
# Messages take their latency and bytes over bandwidth, and start when both ends have posted them. A call that finds
# nothing takes no time, where SMPI would let 0.1 ms pass; between two looks kvring sleeps 0.3 ms, which it does here too.
CONFIGURATION = {
    "smpi/privatization": "no", "smpi/simulate-computation": "no", "smpi/host-speed": "1Gf", "network/model": "CM02",
    "network/crosstraffic": "0", "network/TCP-gamma": "0", "smpi/send-is-detached-thresh": "0", "smpi/test": "0",
    "smpi/iprobe": "0", "smpi/grow-injected-times": "no"}


def run(*command, **how):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(folder):
    run("cmake", "-S", SOURCE, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DKVRING_MPI=OFF",
        "-DKVRING_TESTS=OFF")
    run("cmake", "--build", folder, "-j2", "--target", "kvring_cli")
    objects = []
    transport = SOURCE / "src/transport/mpi"
    for source in (HERE / "ring.cc", transport / "check.cc", transport / "mpi.cc", transport / "mpi_wire.cc"):
        objects.append(folder / f"{source.stem}.smpi.o")
        run("smpicxx", "-O2", "-std=c++20", "-DSMPI_NO_OVERRIDE_MALLOC", "-include", HERE / "plain_sleep.h",
            f"-I{SOURCE}/include", f"-I{SOURCE}/src", "-c", source, "-o", objects[-1])
    # SMPI loads the program after its own library, whose functions would come before those of ring.cc.
    run("smpicxx", "-Wl,-Bsymbolic", *objects, folder / "src/libkvring.a", "-lfmt", "-lhwy", "-lxxhash", "-o", folder / "ring")


def platform(machine, ranks, per_node):
    """Ports as those of src/planner/ports.h: of every rank within its node and to others, and of every node."""
    near, far = machine["within_node"], machine["between_nodes"]
    lines = ["<?xml version='1.0'?>", '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">',
             '<platform version="4.1"><zone id="all" routing="Full">']
    lines += [f'<host id="rank{r}" speed="1Gf"/>' for r in range(ranks)]

    def link(name, bytes_per_s, latency_s):
        lines.append(f'<link id="{name}" bandwidth="{bytes_per_s}Bps" latency="{latency_s / 2}s"/>')

    for r in range(ranks):
        for way in ("out", "in"):
            link(f"near_{way}{r}", near["bytes_per_s"], near["latency_s"])
            link(f"far_{way}{r}", far["bytes_per_s"], far["latency_s"])
    for node in range((ranks + per_node - 1) // per_node):
        for way in ("out", "in"):
            link(f"node_{way}{node}", far["bytes_per_s"] * far["links"], 0)
    for i in range(ranks):
        for j in range(ranks):
            a, b = i // per_node, j // per_node
            if i == j:
                continue
            links = [f"near_out{i}", f"near_in{j}"] if a == b else [f"far_out{i}", f"node_out{a}", f"node_in{b}", f"far_in{j}"]
            lines.append(f'<route src="rank{i}" dst="rank{j}" symmetrical="NO">' +
                         "".join(f'<link_ctn id="{name}"/>' for name in links) + "</route>")
    lines.append("</zone></platform>")
    return "\n".join(lines)


def simgrid_s(folder, machine, ranks, per_node, schedule):
    xml, hosts = folder / f"platform-{ranks}-{per_node}.xml", folder / f"hosts-{ranks}"
    xml.write_text(platform(machine, ranks, per_node))
    hosts.write_text("".join(f"rank{r}\n" for r in range(ranks)))
    flags = ["--log=root.thres:error"] + [f"--cfg={name}:{value}" for name, value in CONFIGURATION.items()]
    text = run("smpirun", "-np", ranks, "-platform", xml, "-hostfile", hosts, *flags, folder / "ring", TOKENS, HEADS, DIM,
               LAYERS, schedule, cwd=folder)
    if "seconds" not in text:
        sys.exit(f"{ranks} ranks, {schedule}: SMPI printed no time:\n{text}")
    return float(text.split("seconds")[-1].split()[0])


def kvring_s(folder, machine, ranks, per_node, schedule):
    file = folder / "machine.json"
    file.write_text(json.dumps(machine))
    text = run(folder / "bin/kvring", "simulate", "--machine", file, "--ranks", ranks, "--ranks-per-node", per_node,
               "--q-heads", HEADS, "--head-dim", DIM, "--dtype", "f32", "--seq-len", TOKENS * ranks, "--layers", LAYERS,
               "--layout", "contiguous", "--schedule", schedule, "--json")
    return json.loads(text)["total_s"]


def faster(machine, times):
    for link in (machine["within_node"], machine["between_nodes"]):
        link["bytes_per_s"] *= times
        link["latency_s"] /= times
    return machine


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("ranks", type=int, nargs="*", default=[4, 16])
    parser.add_argument("--schedules", nargs="+", choices=SCHEDULES, default=SCHEDULES)
    parser.add_argument("--per-node", type=int, nargs="+", default=(1, 4))
    parser.add_argument("--faster", type=float, default=1, metavar="X")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    machine = faster(json.loads((HERE / "slow_network.json").read_text()), arguments.faster)
    build(folder)
    print("| schedule | ranks | per node | SimGrid s | kvring simulate s | ratio | takes s |\n|---|---|---|---|---|---|---|",
          flush=True)
    for ranks in arguments.ranks:
        for schedule in arguments.schedules:
            for per_node in arguments.per_node:
                began = time.monotonic()
                theirs = simgrid_s(folder, machine, ranks, per_node, schedule)
                ours = kvring_s(folder, machine, ranks, per_node, schedule)
                print(f"| {schedule} | {ranks} | {per_node} | {theirs:.4f} | {ours:.4f} | {ours / theirs:.3f} | "
                      f"{time.monotonic() - began:.0f} |", flush=True)


if __name__ == "__main__":
    main()
