"""The platform "echo" under pressure: it answers the last token plus one, and refuses a context that is not what was
computed for it. Faults planted in it end their requests, and the engine goes on.
"""

import json

import pytest
from conftest import GOLDEN, contracts, metric, open_llm, random_prompts, token_prompts

MODEL = GOLDEN / "llama_gqa64"
VOCAB = json.loads((MODEL / "config.json").read_text())["vocab_size"]
OPTIONS = {"max_model_len": 256, "block_size": 16, "max_num_batched_tokens": 64, "skip_tokenizer_init": True}
ECHO = {"platform": "echo"}
TOKENS = 60


def generate(llm, prompts, **fields):
    from vllm import SamplingParams

    wanted = {"temperature": 0.0, "max_tokens": TOKENS, "ignore_eos": True, "detokenize": False} | fields
    return [
        output.outputs[0] for output in llm.generate(token_prompts(prompts), SamplingParams(**wanted), use_tqdm=False)
    ]


def counted_on(prompt, count=TOKENS):
    return [(prompt[-1] + 1 + i) % VOCAB for i in range(count)]


@contracts
def test_every_context_is_what_was_computed(contract):
    prompts = random_prompts(range(70, 76), VOCAB)
    with open_llm(MODEL, contract, ECHO, num_gpu_blocks_override=24, **OPTIONS) as llm:
        for asked in (prompts, prompts[::-1], prompts[:1], prompts[:1]):  # the last one's prefix is there
            answers = generate(llm, asked)
            assert [answer.finish_reason for answer in answers] == ["length"] * len(asked)
            assert [answer.token_ids for answer in answers] == [counted_on(prompt) for prompt in asked]
        assert metric(llm, "vllm:num_preemptions") > 0, "the cache was to be too small"
        assert metric(llm, "vllm:prefix_cache_hits") > 0


@contracts
@pytest.mark.parametrize("fault", ["throw@6", "nan@6"])
def test_a_fault_ends_its_requests_and_not_the_engine(contract, fault, monkeypatch):
    """The sixth step is one of three decoding requests, whose prompts take three: a step that throws takes all of them
    along, a row that is not finite its own.
    """
    monkeypatch.setenv("SPYRE_ECHO_FAULT", fault)
    prompts = random_prompts((50, 60, 70), VOCAB, seed=5)
    with open_llm(MODEL, contract, ECHO, num_gpu_blocks_override=64, **OPTIONS) as llm:
        failed, again = generate(llm, prompts), generate(llm, prompts)
    reasons = [answer.finish_reason for answer in failed]
    assert reasons.count("error") == (3 if fault.startswith("throw") else 1)
    for answer, prompt in zip(failed, prompts):
        count = len(answer.token_ids)
        assert answer.token_ids == counted_on(prompt, count) and (count == TOKENS) == (answer.finish_reason == "length")
    assert [answer.token_ids for answer in again] == [counted_on(prompt) for prompt in prompts], "nothing of it is left"
