"""Real models through the hosted worker: transformers' greedy tokens, and the native engine's bits."""

import json

import pytest
from scheduler_steps import GOLDEN, cached_requests, new_request, scheduler_output, step

from spyre_inference import Engine, NotFoundError, SamplingParams, _native


def test_greedy_tokens_of_a_golden_model():
    """One prompt in chunks, twice side by side, then token by token: what transformers generated in fp32."""
    golden = json.loads((GOLDEN / "llama_gqa64" / "golden.json").read_text())
    prompt, expected = golden["prompt_token_ids"], golden["greedy_token_ids"]
    worker = _native.HostedWorker({"platform": "cpu", "model": str(GOLDEN / "llama_gqa64"), "block_size": 16})
    worker.load_model()
    worker.initialize_kv_cache(32)
    worker.warm_up()
    answer = step(worker, scheduler_output({"a": 50}, [new_request("a", prompt, range(1, 11))]))
    assert answer.token_ids == [[]]
    fields = {"cached": cached_requests(("a", None, 50, 0)), "new": [new_request("b", prompt, range(11, 21))]}
    answer = step(worker, scheduler_output({"b": len(prompt), "a": len(prompt) - 50}, **fields))
    tokens = [answer.token_ids[0]]
    assert answer.token_ids[1] == answer.token_ids[0]
    for drawn in range(1, len(expected)):
        known = len(prompt) + drawn - 1
        both = cached_requests(("a", None, known, drawn), ("b", None, known, drawn))
        answer = step(worker, scheduler_output({"a": 1, "b": 1}, cached=both))
        assert answer.token_ids[0] == answer.token_ids[1]
        tokens.append(answer.token_ids[0])
    assert [token for drawn in tokens for token in drawn] == expected


@pytest.mark.parametrize("platform", ["cpu", "spyre"])
@pytest.mark.parametrize("model", ["llama_gqa64", "qwen3_gqa48"])
def test_the_native_engine_gives_the_same_bits(platform, model):
    """Two prompts side by side, one of them in chunks, against each alone through the engine of the native server."""
    folder, drawn = GOLDEN / model, 6
    golden = json.loads((folder / "golden.json").read_text())
    prompts = {"a": golden["prompt_token_ids"], "b": golden["prompt_token_ids"][5:40]}
    settings = {"platform": platform, "max_model_len": 256}
    try:
        _native.complete_config(settings, (folder / "config.json").read_text())
    except NotFoundError:
        pytest.skip(f"there is no platform {platform} here")
    asked = SamplingParams(temperature=0.0, max_tokens=drawn, ignore_eos=True, logprobs=3, prompt_logprobs=2)
    with Engine(str(folder), **settings) as engine:
        expected = {name: engine.generate([prompt], asked)[0] for name, prompt in prompts.items()}

    worker = _native.HostedWorker(settings | {"model": str(folder), "block_size": 64})
    worker.load_model()
    worker.initialize_kv_cache(17)
    worker.warm_up()
    chunk = 70
    first = new_request("a", prompts["a"], [1, 2, 3, 4], sampling_params=asked)
    assert step(worker, scheduler_output({"a": chunk}, [first])).token_ids == [[]]
    second = new_request("b", prompts["b"], [5], sampling_params=asked)
    rest = {"b": len(prompts["b"]), "a": len(prompts["a"]) - chunk}
    answers = [step(worker, scheduler_output(rest, [second], cached_requests(("a", None, chunk, 0))))]
    for n in range(1, drawn):
        rows = [(name, None, len(prompts[name]) + n - 1, n) for name in ("b", "a")]
        answers.append(step(worker, scheduler_output({"b": 1, "a": 1}, cached=cached_requests(*rows))))

    for row, name in enumerate(("b", "a")):
        choice = expected[name].choices[0]
        assert [answer.token_ids[row][0] for answer in answers] == list(choice.token_ids)
        for answer, logprob in zip(answers, choice.logprobs, strict=True):
            assert_same_bits([part[row] for part in answer.logprobs], logprob)
        prompt_parts = zip(*answers[0].prompt_logprobs[name], strict=True)
        for parts, logprob in zip(prompt_parts, expected[name].prompt_logprobs, strict=True):
            assert_same_bits(parts, logprob)


def assert_same_bits(parts, logprob) -> None:
    ids, logprobs, rank = parts
    assert ids.tolist() == [logprob.token_id, *(token for token, _ in logprob.top)]
    assert logprobs.tolist() == [logprob.logprob, *(value for _, value in logprob.top)]
    assert rank == logprob.rank
