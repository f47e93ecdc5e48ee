"""`vllm serve` with the official client: an engine process of its own, a cache that is too small, rude clients."""

import json
import re
import threading
import time

import pytest
from conftest import ROOT, native_bits, random_prompts

GREEDY = {"model": "model", "temperature": 0.0}


def word_prompts(lengths, seed):
    """Token ids of plain words: where a prompt ends within a character, vLLM's detokeniser gives the prompt as well."""
    vocab = json.loads((ROOT / "tests" / "data" / "tiny_tokenizer.json").read_text())["model"]["vocab"]
    words = sorted(token for text, token in vocab.items() if text.isascii() and text.isalpha())
    return [[words[i % len(words)] for i in prompt] for prompt in random_prompts(lengths, 10**6, seed)]


def whole_characters(text):
    """vLLM keeps back the bytes of a character that the last token left unfinished; the native engine shows U+FFFD."""
    return text.rstrip("\ufffd")


@pytest.fixture(scope="module")
def client(server):
    return server.client()


@pytest.fixture(scope="module")
def answers(native, tiny):
    """The native engine's, for prompts of token ids."""
    prompts = word_prompts((4, 70, 130), seed=21)
    return prompts, native(tiny, prompts, temperature=0.0, max_tokens=24, ignore_eos=True, logprobs=2)


def complete(client, prompt, **fields):
    return client.completions.create(prompt=prompt, **(GREEDY | {"max_tokens": 8} | fields))


def test_the_engine_runs_on_our_platform(server):
    assert "spyre_inference.vllm.scheduler.SpyreScheduler" in server.text()
    assert "programs compiled" in server.text()


def test_completions_are_the_native_engines(client, answers):
    prompts, expected = answers
    extra = {"ignore_eos": True, "return_token_ids": True, "return_tokens_as_token_ids": True}
    for prompt, native in zip(prompts, expected):
        choice = complete(client, prompt, max_tokens=24, logprobs=2, extra_body=extra).choices[0]
        assert choice.token_ids == native.token_ids
        assert choice.text == whole_characters(native.text)
        assert choice.logprobs.token_logprobs == [entry.logprob for entry in native.logprobs]
        for ours, theirs in zip(choice.logprobs.top_logprobs, native_bits(native.logprobs)):
            assert {int(name.removeprefix("token_id:")): value for name, value in ours.items()} == {
                token: value for token, (value, _) in theirs.items()
            }


def test_a_stream_says_what_the_answer_says(client, answers):
    prompts, expected = answers
    stream = complete(client, prompts[1], max_tokens=24, stream=True, extra_body={"ignore_eos": True})
    parts = [chunk.choices[0].text for chunk in stream]
    assert len(parts) > 3 and "".join(parts) == whole_characters(expected[1].text)


def test_chat_streamed_and_not(client):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello there"}]
    wanted = {**GREEDY, "messages": messages, "max_tokens": 12, "logprobs": True, "top_logprobs": 2}
    whole = client.chat.completions.create(**wanted)
    assert len(whole.choices[0].logprobs.content) == whole.usage.completion_tokens
    parts = [chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(stream=True, **wanted)]
    assert "".join(parts) == whole.choices[0].message.content


def test_two_choices(client):
    choices = complete(client, "hello", n=2, temperature=1.0, seed=5, max_tokens=16).choices
    assert len(choices) == 2 and choices[0].text != choices[1].text


def test_echo_with_logprobs(client):
    answer = complete(client, "hello there", echo=True, logprobs=1, max_tokens=2, extra_body={"ignore_eos": True})
    logprobs = answer.choices[0].logprobs.token_logprobs
    assert logprobs[0] is None and all(value <= 0 for value in logprobs[1:])
    assert len(logprobs) == answer.usage.prompt_tokens + 2
    assert answer.choices[0].text.startswith("hello there")


def test_a_schema_is_kept(client):
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    response_format = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    answer = client.chat.completions.create(
        messages=[{"role": "user", "content": "x"}], response_format=response_format, max_tokens=60, **GREEDY
    )
    assert json.loads(answer.choices[0].message.content)["n"] in (1, 2)


def test_a_regular_expression_is_kept(client):
    extra = {"structured_outputs": {"regex": "[0-9]{3}-[a-f]{2}"}}
    assert re.fullmatch("[0-9]{3}-[a-f]{2}", complete(client, "x", max_tokens=40, extra_body=extra).choices[0].text)


def test_a_prefix_is_found(client):
    prompt = word_prompts((150,), seed=77)[0]
    cold, warm = complete(client, prompt), complete(client, prompt)
    assert warm.usage.prompt_tokens_details.cached_tokens == 128
    assert cold.choices[0].text == warm.choices[0].text


def test_requests_are_set_back_and_lose_nothing(client, server, native, tiny):
    prompts = word_prompts((150,) * 8, seed=31)
    expected = native(tiny, prompts, temperature=0.0, max_tokens=150, ignore_eos=True)
    answers = [None] * len(prompts)
    extra = {"ignore_eos": True, "return_token_ids": True}

    def ask(i):
        answers[i] = complete(client, prompts[i], max_tokens=150, extra_body=extra).choices[0].token_ids

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [answer.token_ids for answer in expected]
    assert server.metric("vllm:num_preemptions_total") > 0, "the cache was to be too small"


def test_a_client_that_leaves_is_cancelled(client, server):
    stream = complete(client, "hello", max_tokens=450, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    end = time.monotonic() + 20
    while server.metric("vllm:num_requests_running") > 0:
        assert time.monotonic() < end, "it still runs"
        time.sleep(0.05)
    assert server.metric("vllm:kv_cache_usage_perc") == 0


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"logit_bias": {"9999": 1.0}}, ("9999", "logit_bias")),
        ({"extra_body": {"allowed_token_ids": [502]}}, ("502", "allowed_token_ids")),
        ({"extra_body": {"stop_token_ids": [7777]}}, ("7777", "stop_token_ids")),
        ({"extra_body": {"logprob_token_ids": [3]}, "logprobs": 1}, ("logprob_token_ids is not built",)),
        ({"max_tokens": 5000}, ("5000",)),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_served_is_a_400_in_our_words(client, fields, parts):
    import openai

    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, "hello", **fields)
    for part in parts:
        assert part in str(caught.value)
    assert complete(client, "hello").choices[0].text is not None


# ---------------------------------------------------------------- a step that throws, on the platform "echo"


def test_a_fault_is_a_500_with_the_reason_and_the_next_request_is_served(echo_server):
    """The fourth forward pass since the start throws: here the fourth token of this answer."""
    import openai

    client = echo_server.client()
    with pytest.raises(openai.InternalServerError, match="the step failed: .*forward pass"):
        complete(client, [5, 6, 7], max_tokens=20, extra_body={"ignore_eos": True})
    answer = complete(client, [5, 6, 7], max_tokens=2, extra_body={"ignore_eos": True, "return_token_ids": True})
    assert answer.choices[0].token_ids == [8, 9]


def test_a_stream_ends_with_the_reason(echo_server):
    """After the test above, the eighth forward pass is the second token of this answer."""
    import openai

    client = echo_server.client()
    stream = complete(client, [5, 6, 7], max_tokens=20, stream=True, extra_body={"ignore_eos": True})
    with pytest.raises(openai.APIError, match="the step failed: .*forward pass"):
        for _ in stream:
            pass
    assert complete(client, [5, 6, 7], max_tokens=2).choices[0].finish_reason == "length"
