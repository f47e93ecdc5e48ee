#!/usr/bin/env python3
"""LLM() with an engine process of its own; what it answers, as a line of JSON among those of vLLM.

    engine_process.py MODEL PROMPTS_JSON

In a process by itself, because vLLM forks its engine: a process that has computed before has threads that a fork loses.
"""

import json
import os
import sys


def main():
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
    from vllm import LLM, SamplingParams

    model, prompts = sys.argv[1], json.loads(sys.argv[2])
    llm = LLM(model, max_model_len=512, max_num_seqs=8, block_size=64, num_gpu_blocks_override=32)
    wanted = SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True, logprobs=1)
    asked = [{"prompt_token_ids": prompt} for prompt in prompts]
    first = llm.generate(asked, wanted, use_tqdm=False)
    llm.sleep(level=1)
    llm.wake_up()
    second = llm.generate(asked, wanted, use_tqdm=False)
    answers = [
        [{"token_ids": o.outputs[0].token_ids, "logprobs": [p[t].logprob for p, t in logprobs(o)]} for o in outputs]
        for outputs in (first, second)
    ]
    print(json.dumps(answers))


def logprobs(output):
    return zip(output.outputs[0].logprobs, output.outputs[0].token_ids)


if __name__ == "__main__":
    main()
