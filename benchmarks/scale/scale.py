#!/usr/bin/env python3
"""How step time grows: with tokens, sequences, context, depth, ladders and threads; and what 8 to 64 cores should make of it.

    scale.py [--quick] [--out build/scale/result.json] [--write-docs]      for a quiet machine, some minutes

Everything is measured with `spyre bench drive` on random models of SmolLM2-135M's shape (and a tiny one for the fixed costs
of a layer); a figure is the median of `--samples`. The model for more cores is model.py of this folder.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "peers"))

import docs_section  # noqa: E402
import environments as env  # noqa: E402
import machine  # noqa: E402
import model as cost_model  # noqa: E402
import processes  # noqa: E402

VOCABULARY = 2048
SHAPE = ["--like", "smollm2-135m"]
TINY = ["--like", "smollm2-135m", "--hidden", "64", "--heads", "2", "--kv-heads", "1", "--head-dim", "32",
        "--intermediate", "128", "--vocab", "2048"]  # fmt: skip
POWERS = "1,2,4,8,16,32,64,128,256,512"
CORES = (1, 2, 8, 16, 32, 64)


def make_folder(name, flags, layers):
    folder = env.CACHE / "bench-models" / f"scale-{name}-{layers}"
    if not (folder / "complete").exists():
        env.run(env.own_python(), env.ROOT / "tests/golden/make_random_model.py", folder, *flags, "--layers", str(layers),
                "--max-position", "16384", what="make_random_model.py")  # fmt: skip
        (folder / "complete").touch()
    return folder


def steps_of_all(times):
    """Seconds of each step in which every sequence takes part, out of when the tokens of each came."""
    begin, end = max(t[0] for t in times), min(t[-1] for t in times)
    moments = [t for t in times[-1] if begin <= t <= end]
    return [b - a for a, b in zip(moments, moments[1:])]


class Steps:
    """An open model, and the times of its steps."""

    def __init__(self, program, folder, threads, samples, flags=(), sequences=128, length=8448):
        options = {"gguf": folder, "length": length, "sequences": sequences, "threads": threads, "cache_tokens": 16384}
        self.engine = processes.Spyre(program, options, flags)
        self.opened = self.engine.facts["opened"]
        self.samples = samples

    def run(self, prompts, output):
        return self.engine.ask({"run": {"prompts": prompts, "output_tokens": output}})["times"]

    def prompt(self, tokens):
        """Seconds of the one step that computes so many tokens and a row of logits."""
        ids = [[(7 * i) % VOCABULARY for i in range(tokens)]]
        self.run(ids, 1)
        return statistics.median(self.run(ids, 1)[0][0] for _ in range(self.samples))

    def decode(self, sequences, context, steps=24):
        """Seconds of a step in which so many sequences decode at about this context."""
        ids = [[(7 * i + s) % VOCABULARY for i in range(max(1, context - steps // 2))] for s in range(sequences)]
        of_all = []
        for _ in range(self.samples if context < 2048 else 1):
            times = self.run(ids, steps)
            of_all += steps_of_all(times)
        return statistics.median(of_all)

    def limits(self):
        return self.engine.limits(min(self.engine.work["weight_bytes_per_step"], 1 << 29))

    def report(self, topic):
        return self.engine.ask({"report": topic})["report"]


def measure(args):
    with contextlib.ExitStack() as stack:

        def opened(folder, threads, **more):
            steps = Steps(args.spyre, folder, threads, args.samples, **more)
            stack.callback(steps.engine.close)
            return steps

        whole = make_folder("135m", SHAPE, 30)
        result = {"date": docs_today(), "machine": machine.facts(), "threads": {}}
        for threads in sorted({1, env.threads()}):
            env.say(f"{threads} threads: tokens, sequences, context")
            steps = opened(whole, threads)
            result["threads"][threads] = {
                "tokens": [[t, steps.prompt(t)] for t in args.tokens],
                "sequences": [[b, steps.decode(b, 64)] for b in args.sequences],
                "context": [[c, steps.decode(1, c)] for c in args.context],
                "limits": steps.limits(),
            }
            result["work"] = steps.engine.work
            result["layers"] = 30
            env.say(f"{threads} threads: depth")
            result["threads"][threads]["depth"] = depth(args, opened, "135m", SHAPE, threads, args.depths)
            result["threads"][threads]["tiny"] = depth(args, opened, "tiny", TINY, threads, (4, 16, 64))
        env.say("ladders")
        result["ladders"] = [ladder(opened, whole, name, flags) for name, flags in
                             (("default", ()), ("powers of two", ("--token-buckets", POWERS)))]  # fmt: skip
        return result


def depth(args, opened, name, flags, threads, depths):
    return [[layers, opened(make_folder(name, flags, layers), threads, sequences=4, length=1024).decode(1, 64)]
            for layers in depths]  # fmt: skip


def ladder(opened, folder, name, flags):
    """Its price at the start, and that a step of 33 tokens does not care for its bucket."""
    steps = opened(folder, env.threads(), flags=flags)
    artifacts, start = steps.report("artifacts"), steps.opened["start"]
    return {"name": name, "tokens": steps.report("buckets")["tokens"], "artifacts": artifacts["total"],
            "variants": artifacts["attention_variants"], "compile_seconds": start["compile_seconds"],
            "ready_seconds": start["ready_seconds"], "step_of_33": steps.prompt(33)}  # fmt: skip


def docs_today():
    import datetime

    return datetime.date.today().isoformat()


def modelled(result):
    """[(what, {cores: seconds})] by model.py, with the memory as it is here and as it would have to be."""
    one, all_ = result["threads"]["1"], result["threads"][max(result["threads"], key=int)]
    costs = cost_model.fixed_costs(one["tiny"], all_["tiny"])
    work, layers = result["work"], result["layers"]
    many = max(one["tokens"])
    flops = lambda tokens: tokens * work["body_flops_per_token"] + work["head_flops_per_row"]
    efficiency = min(1.0, flops(many[0]) / many[1] / 1e9 / one["limits"]["gflops"])
    cases = [("decode, 1 sequence", work["body_flops_per_token"] + work["head_flops_per_row"]),
             ("decode, 64 sequences", 64 * (work["body_flops_per_token"] + work["head_flops_per_row"])),
             ("prefill, 512 tokens", flops(512))]  # fmt: skip
    rows = []
    for what, amount in cases:
        for memory, bandwidth in (("as here", all_["limits"]["gbps"]), ("grows with the cores", 1e9)):
            seconds = {n: cost_model.step_seconds(n, amount, work["weight_bytes_per_step"], layers, costs,
                                                  one["limits"]["gflops"], efficiency, one["limits"]["gbps"], bandwidth)
                       for n in CORES}  # fmt: skip
            rows.append((what, memory, seconds))
    return costs, efficiency, rows


def ms(seconds):
    return f"{1e3 * seconds:.2f}" if seconds < 0.1 else f"{1e3 * seconds:.0f}"


def curve(result, key, unit):
    threads = sorted(result["threads"], key=int)
    xs = [x for x, _ in result["threads"][threads[0]][key]]
    lines = [f"| {unit} | " + " | ".join(f"{x}" for x in xs) + " |", "|---" * (len(xs) + 1) + "|"]
    for n in threads:
        lines.append(f"| {n} thread{'s' * (n != '1')}, ms | " + " | ".join(ms(y) for _, y in result["threads"][n][key]) + " |")
    return lines


def markdown(result):
    m = result["machine"]
    out = [f"{m['cpu']} ({m['family']}), {m['kind']}, {m['cores']} cores; {result['date']}; bf16, SmolLM2-135M's shape, ms a step."]
    for key, unit in (("tokens", "tokens of a prompt in the step"), ("sequences", "sequences that decode, context 64"),
                      ("context", "context of one sequence that decodes"), ("depth", "layers, one sequence"),
                      ("tiny", "layers of a tiny model (hidden 64)")):  # fmt: skip
        out += ["", *curve(result, key, unit)]
    out += ["", "| ladder | entries | artifacts | attention variants | compiled in | ready after | step of 33 tokens |", "|---" * 7 + "|"]
    for row in result["ladders"]:
        out.append(f"| {row['name']} | {len(row['tokens'])} | {row['artifacts']} | {row['variants']} | "
                   f"{row['compile_seconds']:.2f} s | {row['ready_seconds']:.2f} s | {ms(row['step_of_33'])} ms |")  # fmt: skip
    costs, efficiency, rows = modelled(result)
    one = result["threads"]["1"]["limits"]
    out += ["", f"Modelled: P = {one['gflops']:.0f} GFLOP/s, e = {efficiency:.2f}, S(1) = {one['gbps']:.1f} GB/s, "
            f"d = {1e6 * costs['d']:.1f} us, s(2) = {1e6 * costs['s2']:.2f} us, h = {1e6 * costs['h']:.0f} us.", "",
            "| step, ms (modelled) | memory | " + " | ".join(f"{n} cores" if n > 1 else "1 core" for n in CORES) + " |",
            "|---" * (2 + len(CORES)) + "|"]  # fmt: skip
    out += [f"| {what} | {memory} | " + " | ".join(ms(seconds[n]) for n in CORES) + " |" for what, memory, seconds in rows]
    return "\n".join(out)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer points, one sample")
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--spyre", type=pathlib.Path, default=env.ROOT / "build/release/bin/spyre")
    parser.add_argument("--out", type=pathlib.Path, default=env.ROOT / "build/scale/result.json")
    parser.add_argument("--from", dest="result", type=pathlib.Path, help="no measuring: show this result")
    parser.add_argument("--write-docs", action="store_true", help="put the tables into docs/performance.md")
    args = parser.parse_args()
    args.tokens = (1, 8, 64, 512) if args.quick else (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    args.sequences = (1, 16, 64) if args.quick else (1, 2, 4, 8, 16, 32, 64, 128)
    args.context = (64, 2048) if args.quick else (64, 512, 1024, 2048, 4096, 8192)
    args.depths = (5, 30) if args.quick else (5, 10, 20, 30)
    args.samples = 1 if args.quick else args.samples
    return args


def main():
    args = parse()
    # Through JSON either way, so that what is shown is what is kept.
    result = json.loads(args.result.read_text() if args.result else json.dumps(measure(args)))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(markdown(result))
    if args.write_docs:
        docs_section.write_section(env.ROOT / "docs" / "performance.md", "scale", result["machine"]["kind"], markdown(result))


if __name__ == "__main__":
    main()
