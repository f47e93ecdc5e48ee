#!/usr/bin/env python3
"""Counts the instructions of the hot paths under callgrind and compares them with counts.json.

    count.py --program build/release/bin/hot_paths --compiler GNU-12 [--record] [PATH...]

An instruction count does not depend on the machine's speed or load, so a path that has grown shows at once. It does
depend on the compiler and on the C and C++ libraries; counts.json therefore has a table per compiler, and each entry is
held within TOLERANCE of it, growing or shrinking (a count that has shrunk is recorded again, or the next growth hides
behind it). A path that no table has is shown and fails nothing. With a compiler that has no table the counts are held to
the first table within OTHER_TOLERANCE.

valgrind knows no AVX-512 and no AMX; what is counted are the kernels for `portable` and `avx2` (SPYRE_CPU_FEATURES).
--record writes the table of this compiler. Ends with 77 (skipped) where there is no valgrind.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

TABLE = pathlib.Path(__file__).with_name("counts.json")
FEATURES = ("portable", "avx2")
TOLERANCE = 0.05
OTHER_TOLERANCE = 0.30
SKIPPED = 77


def count(program, path, features):
    """Instructions inside spyre_counted(), or the reason why there is no count."""
    command = [
        shutil.which("valgrind"), "--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=spyre_counted",
        "--collect-atstart=no", program, path,
    ]
    environment = dict(os.environ, SPYRE_CPU_FEATURES=features, SPYRE_LOG_LEVEL="error")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    found = re.search(r"Collected\s*:\s*(\d+)", done.stderr)
    if done.returncode != 0 or not found or int(found.group(1)) == 0:
        raise SystemExit(f"{path} on {features}: callgrind ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return int(found.group(1))


def measure(program, paths):
    jobs = [(path, features) for path in paths for features in FEATURES]
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        counts = pool.map(lambda job: count(program, *job), jobs)
    return {f"{path} {features}": n for (path, features), n in zip(jobs, counts)}


def compare(counts, recorded, tolerance):
    """Prints a row per count; the names of those that are too far off."""
    wrong = []
    print(f"{'path':<34} {'counted':>13} {'recorded':>13} {'ratio':>7}   within {1 - tolerance:.2f} to {1 + tolerance:.2f}")
    for name, n in counts.items():
        ratio = n / recorded[name] if name in recorded else None
        far = ratio is not None and abs(ratio - 1) > tolerance
        shown = "-" if ratio is None else f"{ratio:.3f}"
        verdict = "not recorded" if ratio is None else "NO" if far else "yes"
        print(f"{name:<34} {n:>13} {recorded.get(name, '-'):>13} {shown:>7}   {verdict}")
        if far:
            wrong.append(name)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--compiler", required=True, help="name and major version, such as GNU-12")
    parser.add_argument("--record", action="store_true", help="write the table of this compiler")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="all that the program lists")
    a = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is not installed")
        return SKIPPED
    paths = a.paths or subprocess.run([a.program], capture_output=True, text=True, check=True).stdout.split()
    counts = measure(a.program, paths)
    tables = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    if a.record:
        tables[a.compiler] = {**tables.get(a.compiler, {}), **counts}
        TABLE.write_text(json.dumps(tables, indent=2, sort_keys=True) + "\n")
        print(f"{len(counts)} counts of {a.compiler} written to {TABLE.name}")
        return 0
    if not tables:
        print("skipped: counts.json has no table yet")
        return SKIPPED
    known = a.compiler if a.compiler in tables else sorted(tables)[0]
    if known != a.compiler:
        print(f"counts.json has no table of {a.compiler}; compared with that of {known}")
    wrong = compare(counts, tables[known], TOLERANCE if known == a.compiler else OTHER_TOLERANCE)
    if wrong:
        print(f"{len(wrong)} of {len(counts)} counts are off: {', '.join(wrong)}")
        print("where it is meant, record them again: ./run test instructions --record")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
