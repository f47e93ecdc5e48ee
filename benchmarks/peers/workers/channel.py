"""How a peer is driven: the driver writes a JSON object a line to its stdin, and reads one from its stdout.

    {"open": {...}}                                  -> {"opened": {"version": ..., "note": ..., "load_seconds": ...}}
    {"run": {"prompts": [[ids], ...], "output_tokens": N}}
        -> {"series": [[[seconds, tokens so far], ...] of each request]}   seconds from the call of the engine

What a library prints to stdout goes to stderr, so that it cannot be taken for an answer. Only the standard library: each
peer has an environment of its own.
"""

import json
import os
import sys
import time
import traceback


def serve(open_engine, run):
    """`open_engine(options)` returns (engine, facts); `run(engine, prompts, output_tokens)` returns the series."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine = None
    for line in sys.stdin:
        question = json.loads(line)
        try:
            if "open" in question:
                begin = time.perf_counter()
                engine, facts = open_engine(question["open"])
                answer = {"opened": {**facts, "load_seconds": time.perf_counter() - begin}}
            else:
                answer = {"series": run(engine, question["run"]["prompts"], question["run"]["output_tokens"])}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": " ".join(f"{type(error).__name__}: {error}".split())[-300:]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    answers.close()
    os._exit(0)  # not through the destructors of libraries that have threads


def stepped(begin, steps):
    """The series out of what each step brought: an iterator of {request index: tokens that came}."""
    series = {}
    for tokens in steps:
        now = time.perf_counter() - begin
        for request, count in tokens.items():
            if count:
                so_far = series[request][-1][1] if series.get(request) else 0
                series.setdefault(request, []).append((now, so_far + count))
    return [series[i] for i in sorted(series)]
