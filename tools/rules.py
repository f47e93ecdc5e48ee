#!/usr/bin/env python3
"""Drops the check of every lowering rule, one by one, and demands that a test named by its number turns red.

All refusals go through one function of src/plugins/spyre/device/rules.cc. For each rule of the table that file is compiled
once more with SPYRE_DROPPED_RULE set, the unit tests of the plugin are linked with it, and the tests whose names carry the
rule's number (Rules.L15_CoreSpan) are run: at least one must fail (a crash or a hang counts as red). Without a dropped rule
they must all pass. One line per rule; the exit code is 0 when every rule was seen.

  tools/rules.py [--build DIR] [--keep] [NUMBER ...]      NUMBER: L-15; default: all of the table
"""

import argparse
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src/plugins/spyre/device/rules.cc"
HEADER = ROOT / "src/plugins/spyre/device/rules.h"
TARGET = "plugin_test"
TIMEOUT_S = 300


def table():
    """[(number, enumerator)] as the table has them."""
    rows = re.findall(r'Rule::(k\w+),\s*"(L-\d+)"', SOURCE.read_text())
    if not rows:
        sys.exit(f"rules: no table found in {SOURCE}")
    return [(number, name) for name, number in rows]


def build_commands(build):
    """(compile command of rules.cc in the tests' library, link command of the tests), as argument lists."""
    listed = subprocess.run(["ninja", "-C", build, "-t", "commands", TARGET], capture_output=True, text=True, check=True)
    compile_, link = None, None
    for line in listed.stdout.splitlines():
        if f"-c {SOURCE}" in line:
            compile_ = line
        elif re.search(rf"-o bin/{TARGET}\b", line):
            link = line
    if compile_ is None or link is None:
        sys.exit(f"rules: ninja in {build} does not tell how {SOURCE.name} or {TARGET} is made")
    # A link rule is wrapped as ": && c++ ... && :".
    words = shlex.split(link)
    parts, current = [], []
    for word in words:
        if word == "&&":
            parts.append(current)
            current = []
        else:
            current.append(word)
    parts.append(current)
    return shlex.split(compile_), next(part for part in parts if "-o" in part)


def with_output(command, output):
    """|command| with another output, and without writing dependencies."""
    out, skip = [], False
    for i, word in enumerate(command):
        if skip:
            skip = False
        elif word == "-o":
            out += ["-o", str(output)]
            skip = True
        elif word in ("-MT", "-MF"):
            skip = True
        elif word != "-MD":
            out.append(word)
    return out


def run(command, cwd, **kwargs):
    return subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, errors="replace", **kwargs)


def test_names(binary, cwd):
    """{digits of a number: [full names of the tests that carry it]}"""
    listed = run([binary, "--gtest_list_tests"], cwd)
    names, suite = {}, ""
    for line in listed.stdout.splitlines():
        if line and not line.startswith(" "):
            suite = line.split("#")[0].strip()
        elif line.strip():
            test = line.split("#")[0].strip()
            for digits in re.findall(r"(?:^|[_/])L(\d\d)(?=_|$)", test):
                names.setdefault(digits, []).append(suite + test)
    return names


def red(binary, tests, cwd):
    """The first test that fails, or None."""
    try:
        result = run([binary, f"--gtest_filter={':'.join(tests)}", "--gtest_brief=1"], cwd, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return "hung"
    if result.returncode == 0:
        return None
    failed = re.findall(r"^\[  FAILED  \] ([\w./]+)", result.stdout, re.M)
    return failed[0] if failed else f"exit {result.returncode}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build/release"), help="a built build directory (%(default)s)")
    parser.add_argument("--keep", action="store_true", help="use the tests as they are built, without building them first")
    parser.add_argument("numbers", nargs="*", metavar="NUMBER")
    arguments = parser.parse_args()
    build = pathlib.Path(arguments.build).resolve()
    rules = table()
    unknown = [n for n in arguments.numbers if n not in dict(rules)]
    if unknown:
        sys.exit(f"rules: the table has no {', '.join(unknown)}")
    if not arguments.keep and run(["ninja", "-C", build, TARGET], ROOT).returncode != 0:
        sys.exit(f"rules: {TARGET} does not build in {build}")
    compile_, link = build_commands(build)
    present = next(word for word in link if word.endswith("libspyre_plugin.a"))
    names = test_names(build / "bin" / TARGET, ROOT)
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for number, name in rules:
            if arguments.numbers and number not in arguments.numbers:
                continue
            tests = names.get(number[2:], [])
            how = drop(name, tests, folder, build, compile_, link, present)
            ok = how.startswith("red:")
            missed += not ok
            print(f"{number}  {'ok  ' if ok else 'MISS'}  {how}", flush=True)
    print(f"{len(rules)} rules in the table, {missed} not seen by a test")
    return 1 if missed else 0


def drop(name, tests, folder, build, compile_, link, present):
    if not tests:
        return "no test carries the number"
    if (failed := red(build / "bin" / TARGET, tests, ROOT)) is not None:
        return f"not green to begin with: {failed}"
    made, binary = folder / "rules.cc.o", folder / TARGET
    compiled = run([*with_output(compile_, made), f"-DSPYRE_DROPPED_RULE={name}"], build)
    if compiled.returncode != 0:
        return "does not compile: " + compiled.stderr.strip()[-200:]
    # The object stands before the library that has the real one, so the linker takes nothing of it from there.
    command = with_output(link, binary)
    command.insert(command.index(present), str(made))
    linked = run(command, build)
    if linked.returncode != 0:
        return "does not link: " + linked.stderr.strip()[-200:]
    failed = red(binary, tests, ROOT)
    return "all tests stay green" if failed is None else f"red: {failed}"


if __name__ == "__main__":
    sys.exit(main())
