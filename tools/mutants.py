#!/usr/bin/env python3
"""Plants known bugs one by one and demands that a test turns red for each.

tests/mutants.toml lists them; `./run test mutants [NAME...]` runs this. An entry:

    [[mutant]]
    name = "bf16-ties-away"                  # unique; a glob on the command line selects by it
    file = "src/base/half.h"
    from = "..."                             # must occur exactly once in the file
    to = "..."
    target = "base_test"                     # the test program to build
    filter = "Half.*"                        # its --gtest_filter; without the mutant these tests pass

All work is done on a copy of the tree, build/mutants/tree, so the checkout is never touched. A mutant that survives, does
not compile, or does not apply is a failure, and so is a filter that selects no test or is red without the mutant.
"""

import argparse
import fnmatch
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIELDS = ("name", "file", "from", "to", "target", "filter")
TEST_TIMEOUT_S = 300


def load(path):
    """The entries of the list, checked; every fault is reported, not only the first."""
    with open(path, "rb") as file:
        entries = tomllib.load(file).get("mutant", [])
    faults, names = [], set()
    for number, entry in enumerate(entries, 1):
        name = entry.get("name", f"entry {number}")
        missing = [field for field in FIELDS if not isinstance(entry.get(field), str)]
        unknown = [field for field in entry if field not in FIELDS]
        if missing or unknown:
            faults.append(f"{name}: missing {missing}, unknown {unknown}")
            continue
        if name in names:
            faults.append(f"{name}: the name occurs twice")
        names.add(name)
        source = ROOT / entry["file"]
        if not source.is_file():
            faults.append(f"{name}: there is no file {entry['file']}")
        elif (count := source.read_text().count(entry["from"])) != 1:
            faults.append(f"{name}: `from` occurs {count} times in {entry['file']}, not once")
        elif entry["from"] == entry["to"]:
            faults.append(f"{name}: `from` and `to` are equal")
    return entries, faults


def tracked_files():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            capture_output=True)
    if listed.returncode == 0:
        return [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
    skip = {"build", "models", ".cache", ".git"}  # a source tree without git
    return [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")
            if path.is_file() and path.relative_to(ROOT).parts[0] not in skip and "target" not in path.parts]


def copy_tree(tree):
    """Makes |tree| equal to the checkout. Unchanged files keep their time stamps, so that builds stay incremental."""
    wanted = set(tracked_files())
    for path in tree.rglob("*"):
        if path.is_file() and not path.is_symlink() and str(path.relative_to(tree)) not in wanted:
            path.unlink()
    for name in wanted:
        source, target = ROOT / name, tree / name
        if target.is_file() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    for shared in ("models", ".cache"):  # large, and only read
        if (ROOT / shared).is_dir() and not (tree / shared).exists():
            (tree / shared).symlink_to(ROOT / shared)


class Bench:
    """One copy of the tree and its build folder."""

    def __init__(self, jobs):
        self.tree = ROOT / "build/mutants/tree"
        self.build = ROOT / "build/mutants/build"
        self.jobs = jobs
        self.tree.mkdir(parents=True, exist_ok=True)
        copy_tree(self.tree)
        self.run(["cmake", "--preset", "release", "-S", self.tree, "-B", self.build], check=True)

    def run(self, command, timeout=None, check=False):
        result = subprocess.run([str(word) for word in command], cwd=self.tree, timeout=timeout, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        if check and result.returncode != 0:
            sys.exit(f"{result.stdout[-3000:]}\nmutants: {' '.join(map(str, command))} failed")
        return result

    def compiles(self, target):
        return self.run(["ninja", "-C", self.build, "-j", self.jobs, target])

    def tests_pass(self, target, filter_):
        """(passed, how): a crash and a hang count as red, as they would in the suite."""
        try:
            result = self.run([self.build / "bin" / target, f"--gtest_filter={filter_}", "--gtest_brief=1"],
                              timeout=TEST_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return False, "hung"
        if result.returncode == 0:
            ran = "0 tests from 0 test suites ran" not in result.stdout
            return ran, "passed" if ran else "no test selected"
        red = [line.split("]")[1].split("(")[0].strip() for line in result.stdout.splitlines()
               if line.startswith("[  FAILED  ]")]
        return False, red[0] if red else f"exit {result.returncode}"

    def check_baseline(self, entries):
        faults = []
        for target in sorted({entry["target"] for entry in entries}):
            built = self.compiles(target)
            if built.returncode != 0:
                sys.exit(f"{built.stdout[-3000:]}\nmutants: {target} does not build even without a mutant")
        for target, filter_ in sorted({(entry["target"], entry["filter"]) for entry in entries}):
            passed, how = self.tests_pass(target, filter_)
            if not passed:
                faults.append(f"{target} --gtest_filter={filter_} is not green without a mutant: {how}")
        return faults

    def try_mutant(self, entry):
        """-> (killed, detail)"""
        path = self.tree / entry["file"]
        original = path.read_text()
        try:
            path.write_text(original.replace(entry["from"], entry["to"]))
            built = self.compiles(entry["target"])
            if built.returncode != 0:
                error = next((line for line in built.stdout.splitlines() if "error" in line), "see the compiler")
                return False, f"DOES NOT BUILD: {error[:90]}"
            passed, how = self.tests_pass(entry["target"], entry["filter"])
            return (False, "SURVIVED") if passed else (True, how)
        finally:  # also on Ctrl-C; and copy_tree repairs the copy after a kill
            path.write_text(original)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="globs of mutant names (default: all)")
    parser.add_argument("--check", action="store_true", help="only check that every entry still applies")
    parser.add_argument("--list", default=ROOT / "tests/mutants.toml", help="the list to use")
    parser.add_argument("-j", "--jobs", default=os.environ.get("JOBS", str(len(os.sched_getaffinity(0)))))
    options = parser.parse_args()

    entries, faults = load(options.list)
    if faults:
        sys.exit("mutants: " + "\nmutants: ".join(faults))
    if options.check:
        print(f"mutants: {len(entries)} entries apply")
        return 0
    if options.names:
        entries = [entry for entry in entries if any(fnmatch.fnmatch(entry["name"], glob) for glob in options.names)]
    if not entries:
        sys.exit("mutants: no entry is selected")

    bench = Bench(options.jobs)
    if faults := bench.check_baseline(entries):
        sys.exit("mutants: " + "\nmutants: ".join(faults))
    survivors = 0
    width = max(len(entry["name"]) for entry in entries)
    for entry in entries:
        start = time.monotonic()
        killed, detail = bench.try_mutant(entry)
        survivors += not killed
        print(f"{'killed ' if killed else 'FAILURE'}  {entry['name']:{width}}  {time.monotonic() - start:5.1f} s  {detail}",
              flush=True)
    print(f"mutants: {len(entries) - survivors} of {len(entries)} killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\nmutants: interrupted; the checkout was not touched")
