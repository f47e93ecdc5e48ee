#!/usr/bin/env python3
"""Writes a small multiple-choice task for lm-eval into a folder: 24 items, three continuations each.

    make_task.py OUT

The model talks nonsense; what is compared is the score of each continuation, not who is right.
"""
import json
import pathlib
import random
import sys

WORDS = "the capital of France is Paris a stick holds pages and tokens der Zug über café naïve 12 345 def return".split()
rng = random.Random(5)
out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
phrase = lambda low, high: " ".join(rng.choice(WORDS) for _ in range(rng.randint(low, high)))
with open(out / "items.jsonl", "w") as file:
    for _ in range(24):
        item = {"query": phrase(3, 40), "choices": [phrase(1, 6) for _ in range(3)], "gold": 0}
        file.write(json.dumps(item, ensure_ascii=False) + "\n")
(out / "tiny_choice.yaml").write_text(f"""task: tiny_choice
dataset_path: json
dataset_kwargs:
  data_files:
    test: {out.resolve()}/items.jsonl
test_split: test
output_type: multiple_choice
doc_to_text: query
doc_to_choice: choices
doc_to_target: gold
target_delimiter: " "
metric_list:
  - metric: acc
""")
