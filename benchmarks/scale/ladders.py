#!/usr/bin/env python3
"""What the card's padding is under a load of mixed lengths, ladder by ladder, and what each ladder costs.

    ladders.py MODEL [--requests 100] [--out build/scale/ladders.json] [--write-docs]

`spyre bench serve` loads a server with each ladder of token buckets, in a closed loop and with Poisson arrivals; the
padding hardly depends on how fast the machine is, the price (artifacts, seconds of compiling) does.
"""

import argparse
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "peers"))

import docs_section  # noqa: E402
import environments as env  # noqa: E402
import machine  # noqa: E402
import scale  # noqa: E402


def octave_ladder(steps, most):
    """1, 2, ... with so many entries between a power of two and the next, as far as whole numbers allow."""
    entries, power = {most}, 1
    while power < most:
        entries |= {power + power * i // steps for i in range(steps)}
        power *= 2
    return sorted(e for e in entries if e <= most)


LADDERS = {"default": None, "powers of two": octave_ladder(1, 512)} | {
    f"{n} steps an octave": octave_ladder(n, 512) for n in (2, 8)
}


def flags_of(ladder):
    return ["--token-buckets", ",".join(map(str, ladder))] if ladder else []


def load(args, ladder, load_flags):
    command = [args.spyre, "bench", "serve", args.model, "--requests", str(args.requests), "--format", "json", *load_flags,
               "--", "--max-model-len", "2048", "--max-num-seqs", "64", *flags_of(ladder)]  # fmt: skip
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"ladders.py: {done.stderr.strip()}")
    report = json.loads(done.stdout)
    return {"load": report["load"], "padding": report["padding"], "seed": report["seed"]}


def price(args, ladder):
    """Artifacts and seconds of a start, the median of three."""
    starts = []
    for _ in range(3):
        questions = "".join(json.dumps({"report": topic}) + "\n" for topic in ("artifacts", "buckets"))
        done = subprocess.run([str(args.spyre), "bench", "drive", args.model, "--max-model-len", "2048", "--max-num-seqs",
                               "64", *flags_of(ladder)], input=questions, capture_output=True, text=True, check=True)  # fmt: skip
        opened, artifacts, buckets = (json.loads(line) for line in done.stdout.splitlines())
        starts.append((opened["start"]["compile_seconds"], artifacts["report"], buckets["report"]["tokens"]))
    seconds, artifacts, tokens = sorted(starts, key=lambda s: s[0])[1]
    return {"entries": len(tokens), "artifacts": artifacts["total"], "compile_seconds": seconds}


def measure(args):
    rows = []
    for name in args.ladders.split(","):
        ladder = LADDERS[name]
        row = {"name": name, **price(args, ladder), "loads": []}
        for flags in (["--clients", "16"], ["--clients", "64"], ["--rate", str(args.rate)]):
            row["loads"].append(load(args, ladder, flags))
            env.say(f"{name}, {row['entries']} entries, {row['artifacts']} artifacts: {shares(row['loads'][-1])}")
        rows.append(row)
    return {"date": scale.docs_today(), "machine": machine.facts(), "model": pathlib.Path(args.model).stem,
            "requests": args.requests, "rows": rows}  # fmt: skip


def shares(of_load):
    p = of_load["padding"]
    return f"{of_load['load']}: body {100 * p['body']['share']:.1f}%, head {100 * p['head']['share']:.1f}%"


def markdown(result):
    m = result["machine"]
    out = [f"{m['cpu']} ({m['family']}), {m['kind']}, {m['cores']} cores; {result['date']}; {result['model']}, "
           f"{result['requests']} requests a load.", ""]  # fmt: skip
    loads = [row["load"] for row in result["rows"][0]["loads"]]
    out += ["| ladder of tokens | entries | artifacts | compiled in | " + " | ".join(f"{l}: body, head" for l in loads) + " |",
            "|---" * (4 + len(loads)) + "|"]  # fmt: skip
    for row in result["rows"]:
        cells = [f"{100 * l['padding']['body']['share']:.1f}%, {100 * l['padding']['head']['share']:.1f}%" for l in row["loads"]]
        out.append(f"| {row['name']} | {row['entries']} | {row['artifacts']} | {row['compile_seconds']:.2f} s | "
                   + " | ".join(cells) + " |")  # fmt: skip
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--rate", type=float, default=2, help="of the Poisson arrivals")
    parser.add_argument("--ladders", default=",".join(LADDERS), help="of " + ", ".join(LADDERS) + " [all]")
    parser.add_argument("--spyre", type=pathlib.Path, default=env.ROOT / "build/release/bin/spyre")
    parser.add_argument("--out", type=pathlib.Path, default=env.ROOT / "build/scale/ladders.json")
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/performance.md")
    args = parser.parse_args()
    if unknown := set(args.ladders.split(",")) - set(LADDERS):
        parser.error(f"no such ladder: {', '.join(sorted(unknown))}")
    result = measure(args)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(markdown(result))
    if args.write_docs:
        docs_section.write_section(env.ROOT / "docs" / "performance.md", "padding", result["machine"]["kind"], markdown(result))


if __name__ == "__main__":
    main()
