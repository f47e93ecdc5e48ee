#!/usr/bin/env python3
"""What the Python side adds to a step: reading vLLM's words for it, and making Python objects of the answer.

    step_overhead.py [--steps N]

Drives decode steps and subtracts, step by step, the time that the C++ worker itself took (its report "steps"): what is
left is the binding. The model is the test platform "echo", whose own work does not matter here: SPYRE_PLUGIN_PATH must
name the folder of the test plugins, and PYTHONPATH the package. Where vLLM is installed, the same steps also go through
the worker class that vLLM loads, in vLLM's dataclasses and with its ModelRunnerOutput made.

Every sixteenth step gives each sequence a new block. The bounds are those of the project, for the median of a step:
0.15 ms for one sequence, 1 ms for 64. Exit status 1 when one is passed.
"""

import argparse
import importlib.util
import itertools
import json
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python" / "tests"))

from scheduler_steps import GOLDEN, cached_requests, greedy, new_request, scheduler_output  # noqa: E402

from spyre_inference import _native  # noqa: E402

BLOCK, VOCAB, PROMPT = 16, 320, 15
BOUNDS_MS = {1: 0.15, 64: 1.0}


def write_model(folder: Path, max_model_len: int) -> None:
    config = json.loads((GOLDEN / "llama_gqa64" / "config.json").read_text())
    config |= {"vocab_size": VOCAB, "max_position_embeddings": max_model_len}
    (folder / "config.json").write_text(json.dumps(config))
    header = json.dumps({"unused": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))


def make_worker(batch: int, steps: int, folder: Path) -> Any:
    max_model_len = PROMPT + steps + 1
    write_model(folder, max_model_len)
    worker = _native.HostedWorker(
        {
            "platform": "echo",
            "model": str(folder),
            "max_model_len": max_model_len,
            "block_size": BLOCK,
            "max_num_seqs": batch,
            "max_num_batched_tokens": batch * PROMPT,
        }
    )
    worker.load_model()
    worker.initialize_kv_cache(batch * (max_model_len // BLOCK + 1) + 1)
    worker.warm_up()
    return worker


def decode_steps(batch: int, steps: int, **sampling: Any) -> list[Any]:
    """One step of prompts, then |steps| of one token for each sequence, in vLLM's words."""
    ids = [f"cmpl-3f1c8b9e0d2a4c57a6b1-{i:04d}-0" for i in range(batch)]
    blocks = iter(range(1, batch * ((PROMPT + steps) // BLOCK + 2) + 1))
    params = greedy(**sampling)
    prompts = [new_request(i, list(range(PROMPT)), [next(blocks)], sampling_params=params) for i in ids]
    all_steps = [scheduler_output(dict.fromkeys(ids, PROMPT), prompts)]
    for drawn in range(1, steps + 1):
        known = PROMPT + drawn - 1
        fresh = known % BLOCK == 0
        rows = [(i, [next(blocks)] if fresh else None, known, drawn) for i in ids]
        all_steps.append(scheduler_output(dict.fromkeys(ids, 1), cached=cached_requests(*rows)))
    return all_steps


def inside(worker: Any) -> float:
    report = worker.report("steps")
    return report["execute_seconds"] + report["sample_seconds"]


class Binding:
    """The module alone: what it gives is looked at as a host would."""

    def __init__(self, host: Any) -> None:
        self.host = host

    def words(self, output: Any) -> Any:
        return output

    def step(self, output: Any) -> int:
        self.host.execute(output)
        answer = self.host.sample(None)
        assert not answer.errors
        return len(list(zip(answer.req_ids, answer.token_ids, strict=True)))


class Worker:
    """The class that vLLM loads. Raises ImportError without vLLM."""

    def __init__(self, host: Any) -> None:
        from vllm.v1.core.sched import output

        from spyre_inference.vllm import report, worker

        self.classes = output
        self.worker = object.__new__(worker.SpyreWorker)
        self.worker.host = host
        self.worker.meter = report.Meter(host)
        self.worker.meter.start()

    def words(self, output: Any) -> Any:
        fields = dict(vars(output))
        fields["scheduled_cached_reqs"] = self.classes.CachedRequestData(**vars(output.scheduled_cached_reqs))
        fields["scheduled_new_reqs"] = [self.classes.NewRequestData(**vars(new)) for new in output.scheduled_new_reqs]
        return self.classes.SchedulerOutput(**fields)

    def step(self, output: Any) -> int:
        assert self.worker.execute_model(output) is None
        answer = self.worker.sample_tokens(None)
        assert not answer.errors
        return len(answer.sampled_token_ids)


def measure(driver_class: type, batch: int, steps: int, **sampling: Any) -> list[float]:
    """Milliseconds that each decode step took outside of the C++ worker."""
    with tempfile.TemporaryDirectory() as folder:
        host = make_worker(batch, steps, Path(folder))
        driver = driver_class(host)
        added = []
        for output in map(driver.words, decode_steps(batch, steps, **sampling)):
            before = inside(host)
            start = time.perf_counter()
            rows = driver.step(output)
            whole = time.perf_counter() - start
            assert rows == batch
            added.append(1e3 * (whole - (inside(host) - before)))
        return added[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400, help="decode steps of each case")
    steps = parser.parse_args().steps
    drivers: list[type] = [Binding]
    if importlib.util.find_spec("vllm"):
        drivers.append(Worker)
    print(f"{'through':>8} {'sequences':>9} {'log-probs':>9} {'median ms':>10} {'p99 ms':>8} {'bound ms':>9}")
    failed = False
    for driver, (batch, bound), logprobs in itertools.product(drivers, BOUNDS_MS.items(), (None, 5)):
        added = sorted(measure(driver, batch, steps, logprobs=logprobs))
        median, p99 = statistics.median(added), added[len(added) * 99 // 100]
        name = driver.__name__.lower()
        print(f"{name:>8} {batch:>9} {logprobs or '-':>9} {median:>10.4f} {p99:>8.4f} {bound:>9.2f}")
        failed = failed or median > bound
    sys.exit(failed)


if __name__ == "__main__":
    main()
