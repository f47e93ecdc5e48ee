"""`spyre serve` beside llama.cpp's server (PyPI xllamacpp) on one GGUF file: the same load, in turns, medians.

    python3 -m venv .cache/venv-serving && .cache/venv-serving/bin/pip install -r benchmarks/serving/requirements.txt
    .cache/venv-serving/bin/python benchmarks/serving/compare.py models/SmolLM2-135M-Instruct.Q4_1.gguf --clients 16 64

Each turn starts a server, warms it with a few requests, loads it and stops it: spyre, llama.cpp, spyre, ... so that a
machine that changes its mind changes it for both. llama.cpp multiplies the file's 4-bit weights with activations
rounded to 8 bits; spyre multiplies 16-bit weights and activations: the same file, not the same arithmetic.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

import load

ROOT = pathlib.Path(__file__).resolve().parents[2]

LLAMA = """
import sys, threading, xllamacpp as x
model, port, slots, context, threads = sys.argv[1], *map(int, sys.argv[2:])
p = x.CommonParams()
p.model.path, p.hostnames, p.port, p.n_parallel, p.n_ctx = model, ["127.0.0.1"], port, slots, context
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
p.n_batch, p.n_ubatch, p.cont_batching, p.kv_unified, p.n_gpu_layers = 2048, 512, True, True, 0
server = x.Server(p)
print("ready", server.listening_address, flush=True)
threading.Event().wait()
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_healthy(port, process, seconds=120):
    for _ in range(seconds * 10):
        if process.poll() is not None:
            raise RuntimeError("the server ended before it was ready")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as reply:
                if reply.status == 200:
                    return
        except OSError:
            pass
        time.sleep(0.1)
    raise RuntimeError("the server was not ready in time")


def rss(pid):
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
    return float("nan")


def start(kind, model, clients, args):
    port = free_port()
    quiet = subprocess.DEVNULL if not args.verbose else sys.stderr
    if kind == "spyre":
        command = [args.spyre, "serve", model, "--port", str(port), "--max-num-seqs", str(clients),
                   "--max-model-len", "1024", "--served-model-name", args.name, *args.spyre_args.split()]
    else:
        command = [sys.executable, "-c", LLAMA, model, str(port), str(clients), str(clients * 1024),
                   str(len(os.sched_getaffinity(0)))]
    process = subprocess.Popen(command, stdout=quiet, stderr=quiet)
    wait_healthy(port, process)
    return process, port


def turn(kind, clients, args):
    process, port = start(kind, args.model, clients, args)
    try:
        load.measure("127.0.0.1", port, args.name, clients, clients, seed=99, output_range=(4, 8))
        result = load.measure("127.0.0.1", port, args.name, clients, args.requests or 4 * clients)
        result["rss_anon_mib"] = rss(process.pid)
        return result
    finally:
        process.terminate()
        process.wait(30)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--requests", type=int, default=0, help="per turn; 4 per client by default")
    parser.add_argument("--turns", type=int, default=5, help="of each server")
    parser.add_argument("--spyre", default=str(ROOT / "build/release/bin/spyre"))
    parser.add_argument("--spyre-args", default="")
    parser.add_argument("--only", choices=["spyre", "llama.cpp"])
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    args.name = pathlib.Path(args.model).stem
    kinds = [args.only] if args.only else ["spyre", "llama.cpp"]
    shown = ["output_tokens_per_second", "first_token_p50", "gap_p50", "gap_p99", "gap_max", "rss_anon_mib"]
    for clients in args.clients:
        results = {kind: [] for kind in kinds}
        for i in range(args.turns):
            for kind in kinds:
                results[kind].append(turn(kind, clients, args))
                print(json.dumps({"clients": clients, "turn": i, "server": kind, **results[kind][-1]}), file=sys.stderr, flush=True)
        print(f"{clients} clients" + "".join(f"{kind:>14}" for kind in kinds) + ("         ratio" if len(kinds) == 2 else ""))
        for key in shown:
            medians = [statistics.median(r[key] for r in results[kind]) for kind in kinds]
            ratio = f"{medians[0] / medians[1]:14.2f}" if len(kinds) == 2 else ""
            print(f"{key:<26}" + "".join(f"{m:14.4g}" for m in medians) + ratio)


if __name__ == "__main__":
    main()
