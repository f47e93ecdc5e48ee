#!/usr/bin/env python3
"""lm-eval through the server's completions beside lm-eval through transformers, on the same folder.

    compare.py BASE_URL MODEL_FOLDER TASK_FOLDER

Every log-likelihood within 0.01 per token of transformers' in float32, and the same choice wherever transformers' margin
between the two best is larger than twice the tolerance.
"""
import pathlib
import sys

import lm_eval
from lm_eval.tasks import TaskManager

base, model, task = sys.argv[1:]
PER_TOKEN = 0.01


def scores(name, arguments):
    results = lm_eval.simple_evaluate(model=name, model_args=arguments, tasks=["tiny_choice"], num_fewshot=0, batch_size=4,
                                      task_manager=TaskManager(include_path=task), log_samples=True, bootstrap_iters=0,
                                      verbosity="ERROR", device="cpu")
    samples = sorted(results["samples"]["tiny_choice"], key=lambda s: s["doc_id"])
    return [[float(r[0][0] if isinstance(r[0], (list, tuple)) else r[0]) for r in s["resps"]] for s in samples], samples


ours, samples = scores("local-completions", f"model=tiny,base_url={base}/v1/completions,tokenizer={model},num_concurrent=4,"
                       "max_retries=1,tokenized_requests=True,add_bos_token=False,max_length=1024")
theirs, _ = scores("hf", f"pretrained={model},dtype=float32,add_bos_token=False")
from transformers import AutoTokenizer  # noqa: E402

tokenizer = AutoTokenizer.from_pretrained(model)
worst, same, decided = 0.0, 0, 0
for mine, reference, sample in zip(ours, theirs, samples, strict=True):
    tolerances = []
    for a, b, choice in zip(mine, reference, sample["doc"]["choices"], strict=True):
        tokens = len(tokenizer(" " + choice, add_special_tokens=False)["input_ids"])
        tolerances.append(PER_TOKEN * tokens)
        worst = max(worst, abs(a - b) / tokens)
        assert abs(a - b) <= PER_TOKEN * tokens, (sample["doc"], a, b)
    ranked = sorted(reference, reverse=True)
    if ranked[0] - ranked[1] > 2 * max(tolerances):
        decided += 1
        assert mine.index(max(mine)) == reference.index(max(reference)), sample["doc"]
assert decided >= len(samples) // 2, (decided, len(samples))
print(f"lm-eval ok: {len(samples)} items, {decided} with a clear choice, largest difference per token {worst:.4f}")
