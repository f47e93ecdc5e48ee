#!/usr/bin/env python3
"""spyre beside its peers: the same weights, the same prompts, the same threads, in turns; every sample is kept.

    run.py [MODEL...]      135m, 1b, 8b, or one of their types, as 135m-bf16 [135m]; 8b alone means 8b-bf16
    run.py --from FILE...  no measuring: tables, page and plots of earlier runs, joined

Writes build/peers/MODELS.json after every sample, and at the end the table, a page and plots beside it. README.md of this
folder says what is measured and how.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import signal
import sys
import time

import cases
import docs_section
import environments as env
import figures
import machine
import page
import processes
import table


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", default=["135m"])
    parser.add_argument("--from", dest="results", nargs="+", type=pathlib.Path, metavar="FILE", help="results to show")
    parser.add_argument("--cases", help="of " + ",".join(cases.ALL) + " [all; 8b: 512]")
    parser.add_argument("--peers", help="of " + ",".join(processes.PEERS) + ", or none [all]")
    parser.add_argument("--samples", type=int, help="that count, of each engine and case [5; 8b: 3]")
    parser.add_argument("--budget", type=float, default=300, metavar="SECONDS",
                        help="an engine that has taken so long over a case is not asked again [300]")  # fmt: skip
    parser.add_argument("--alone", action="store_true", help="one engine in memory at a time, opened anew for each sample [8b]")
    parser.add_argument("--threads", type=int, default=env.threads(), help="of every engine [the cores]")
    parser.add_argument("--spyre", type=pathlib.Path, default=env.ROOT / "build/release/bin/spyre")
    parser.add_argument("--out", type=pathlib.Path, help="the result [build/peers/MODELS.json]")
    parser.add_argument("--write-docs", action="store_true", help="put the tables into docs/performance.md")
    args = parser.parse_args()
    if args.out is None:
        stem = "joined" if args.results else "+".join(text.lower() for text in args.models)
        args.out = env.ROOT / "build" / "peers" / f"{stem}.json"
    try:
        args.models = [m for text in args.models for m in chosen_models(text)]
        args.cases = chosen(args.cases, cases.ALL, "case")
        args.peers = [] if args.peers == "none" else chosen(args.peers, processes.PEERS, "peer")
    except ValueError as error:
        parser.error(str(error))
    if args.samples is not None and args.samples < 1:
        parser.error("--samples must be at least 1")
    return args


def chosen_models(text):
    found = cases.parse_model(text)
    return [m for m in found if m.dtype == "bf16"] if text.lower() == "8b" else found


def chosen(text, known, what):
    if text is None:
        return list(known)
    names = text.split(",")
    for name in names:
        if name not in known:
            raise ValueError(f"'{name}' is no {what}; known: {', '.join(known)}")
    return names


def opened(function, name, *arguments):
    """The engine, or None and why."""
    try:
        return function(*arguments), None
    except env.Unavailable as error:
        env.say(f"{name} is not there: {error}")
        return None, str(error)


class Run:
    """One model through all its cases."""

    def __init__(self, args, model, result):
        self.args, self.model, self.result = args, model, result
        names = [name for name in args.cases if name in cases.OF_SHAPE[model.shape]]
        self.cases = [cases.ALL[name] for name in names]
        self.samples = args.samples or cases.SAMPLES[model.shape]
        self.alone = args.alone or model.shape == "8b"  # whose weights fit once
        self.engines = {}
        self.facts = result["models"].setdefault(model.name, {"engines": {}, "samples_wanted": self.samples})

    def run(self):
        if not self.cases:
            return
        peers = [p for p in self.args.peers if not self.alone or p in processes.READS_A_MAPPED_FILE]
        for name in set(self.args.peers) - set(peers):
            self.facts["engines"][name] = {"unavailable": "needs more than one copy of these weights in memory"}
        self.options = processes.options_for(self.model, self.cases, cases, self.args.threads, peers)
        self.openers = {"spyre": lambda options: processes.Spyre(self.args.spyre, options)}
        self.openers |= {name: processes.PEERS[name] for name in peers}
        with contextlib.ExitStack() as stack:
            self.meter = self.open_meter(stack)
            if not self.alone:
                for name in list(self.openers):
                    self.open(name, stack)
            for case in self.cases:
                self.run_case(case)

    def open_meter(self, stack):
        """A small model that holds the meters while others are measured."""
        small = cases.Model("135m", self.model.dtype)
        options = processes.options_for(small, [cases.ALL["short"]], cases, self.args.threads)
        meter = processes.Spyre(self.args.spyre, options)
        stack.callback(meter.close)
        return meter

    def open(self, name, stack):
        env.say(f"{self.model.name}: opening {name}")
        engine, why = opened(self.openers[name], name, self.options)
        if why:
            self.facts["engines"][name] = {"unavailable": why}
            del self.openers[name]
            return None
        stack.callback(engine.close)
        self.facts["engines"][name] = engine.facts
        if name == "spyre":
            self.facts["work"] = engine.work
        self.engines[name] = engine
        return engine

    def run_case(self, case):
        prompts = case.prompts(cases.VOCABULARY[self.model.shape])
        if not self.alone:
            for name in list(self.engines):
                self.guarded(name, case, lambda engine: self.warm(engine, case, prompts))
        kept, spent = dict.fromkeys(self.openers, 0), dict.fromkeys(self.openers, 0.0)
        for turn in range(3 * self.samples):  # more turns for those that are thrown away, but not for ever
            for name in [n for n in kept if n in self.openers and self.goes_on(kept[n], spent[n])]:
                begin = time.monotonic()
                sample = self.one_sample(name, case, prompts)
                spent[name] += time.monotonic() - begin
                if sample is None:
                    continue
                sample |= {"model": self.model.name, "turn": turn}
                kept[name] += sample["thrown_away"] is None
                self.result["samples"].append(sample)
                save(self.result, self.args.out)
                env.say(table.sample_line(sample))

    def goes_on(self, kept, spent):
        return kept < self.samples and spent < self.args.budget

    @staticmethod
    def warm(engine, case, prompts):
        """Once in full, unless that takes long: then the beginning, which touches and compiles most of what there is."""
        short = case.requests * case.prompt > 2048
        engine.run(case, [p[:256] for p in prompts] if short else prompts)

    def one_sample(self, name, case, prompts):
        if not self.alone:
            return self.guarded(name, case, lambda engine: self.sample(engine, case, prompts))
        with contextlib.ExitStack() as stack:
            if not self.open(name, stack):
                return None

            def measure(engine):
                engine.run(case, [p[:32] for p in prompts])
                return self.sample(engine, case, prompts)

            try:
                return self.guarded(name, case, measure)
            finally:
                self.engines.pop(name, None)

    def sample(self, engine, case, prompts):
        stream = min(self.facts["work"]["weight_bytes_per_step"] if "work" in self.facts else 1 << 29, 1 << 29)
        return processes.sample(engine, case, prompts, lambda: figures.median_limits(lambda: self.meter.limits(stream)))

    def guarded(self, name, case, function):
        """A peer that fails is out, with the reason; ours is not forgiven."""
        try:
            return function(self.engines[name])
        except env.Unavailable as error:
            if name == "spyre":
                raise
            env.say(f"{name} failed at {case.name}: {error}")
            self.facts["engines"][name]["failed"] = f"{case.name}: {error}"
            self.engines.pop(name).close()
            self.openers.pop(name, None)
            return None


def save(result, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result, indent=1) + "\n")
    os.replace(partial, path)


def command_of(words):
    """What to type for the same run elsewhere: without the paths of this one."""
    kept, skip = [], False
    for word in words:
        if not skip and not word.startswith(("--out", "--spyre")):
            kept.append(word)
        skip = word in ("--out", "--spyre")
    return " ".join(["./run bench peers", *kept])


def measure(args):
    result = {"format": 1, "date": datetime.date.today().isoformat(), "machine": machine.facts(), "threads": args.threads,
              "command": command_of(sys.argv[1:]), "models": {}, "samples": []}  # fmt: skip
    for model in args.models:
        Run(args, model, result).run()
    return result


def joined(results):
    """Runs of one machine as one: a later run of an engine and case takes the place of the earlier."""
    first = results[0]
    for other in results[1:]:
        if other["machine"]["kind"] != first["machine"]["kind"] or other["threads"] != first["threads"]:
            raise SystemExit("run.py: the results are of different machines")
        measured = {(s["model"], s["case"], s["engine"]) for s in other["samples"]}
        first["samples"] = [s for s in first["samples"] if (s["model"], s["case"], s["engine"]) not in measured]
        first["samples"] += other["samples"]
        for name, facts in other["models"].items():
            old = first["models"].get(name, {"engines": {}})
            first["models"][name] = {**old, **facts, "engines": {**old["engines"], **facts["engines"]}}
        first["date"], first["command"] = other["date"], first["command"] + " && " + other["command"]
    return first


def main():
    args = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the engines are closed
    result = joined([json.loads(p.read_text()) for p in args.results]) if args.results else measure(args)
    save(result, args.out)
    print(table.text(result))
    page.write(result, args.out)
    if args.write_docs:
        docs_section.write(result, env.ROOT / "docs" / "performance.md")


if __name__ == "__main__":
    main()
