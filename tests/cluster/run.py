#!/usr/bin/env python3
"""Plays a cluster on this machine and checks kvring on it. Needs root, Open MPI and two cores.

    tests/cluster/run.py build/dev/bin/kvring [--quick] [--only overlap,efficiency,faults,prediction,simulation,turns]

Exit status 0: all checks passed; 1: some did not; 2: could not be run.
"""

import argparse
import os
import pathlib
import signal
import sys
import tempfile
import time

import check
import efficiency
import faults
import overlap
import prediction
import simulation
import turns
from problem import Workbench

SUITES = {"overlap": overlap, "efficiency": efficiency, "faults": faults, "prediction": prediction,
          "simulation": simulation, "turns": turns}


def _arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("kvring", type=pathlib.Path, help="the program; delay_link and conversation lie beside it")
    parser.add_argument("--quick", action="store_true", help="fewer cases and repeats: some ten minutes")
    parser.add_argument("--only", default=",".join(SUITES), metavar="SUITE,...", help="default: %(default)s")
    arguments = parser.parse_args()
    unknown = set(arguments.only.split(",")) - SUITES.keys()
    if unknown:
        parser.error(f"no suite {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    if os.geteuid() != 0:
        parser.error("network namespaces need root")
    return arguments


def main():
    arguments = _arguments()
    # So that what was built up is torn down also when a job server ends the run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    checks = []
    with tempfile.TemporaryDirectory(prefix="kvring-cluster-") as folder:
        kvring = arguments.kvring.resolve(strict=True)
        bench = Workbench(kvring, pathlib.Path(folder), kvring.with_name("delay_link"))
        for name in arguments.only.split(","):
            began = time.monotonic()
            print(f"== {name}", flush=True)
            checks += SUITES[name].run(bench, arguments.quick)
            print(f"({time.monotonic() - began:.0f} s)\n", flush=True)
    print(check.report(checks))
    return 0 if all(c.passed for c in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
