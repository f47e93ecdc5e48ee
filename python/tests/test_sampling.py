"""That each sampling parameter arrives: by what is drawn from a model whose greedy token is known."""

import pytest
from scheduler_steps import (
    OTHER,
    PROMPT,
    VOCAB,
    cached_requests,
    first_step,
    greedy,
    new_request,
    sampling_params,
    scheduler_output,
    step,
)


def draw(worker, *params):
    """The first token of one request for each of |params|, all with the same prompt."""
    requests = [new_request(f"r{i}", PROMPT, [i + 1], sampling_params=p) for i, p in enumerate(params)]
    answer = first_step(worker, *requests)
    assert answer.errors == {}
    worker.execute(scheduler_output({}, finished_req_ids=set(answer.req_ids)))
    return [tokens[0] for tokens in answer.token_ids]


def random(**fields):
    """Nearly flat: the greedy token is one of many."""
    return sampling_params(temperature=50.0, **fields)


def test_a_warm_draw_is_not_the_greedy_one(worker, token):
    assert len({*draw(worker, *(random(seed=seed) for seed in range(16)))}) > 8


@pytest.mark.parametrize("cut", [{"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}, {"temperature": 0.0}], ids=str)
def test_what_leaves_only_the_best_token_draws_it(worker, token, cut):
    drawn = draw(worker, *(sampling_params(**({"temperature": 50.0, "seed": seed} | cut)) for seed in range(16)))
    assert drawn == [token] * 16


def test_a_seed_decides_the_draw(worker):
    first = draw(worker, *(random(seed=seed) for seed in (1, 2, 3, -1, (1 << 64) - 1, 7, 1)))
    assert first[0] == first[6] and first[3] == first[4], "-1 is the same 64 bits"
    assert first == draw(worker, *(random(seed=seed) for seed in (1, 2, 3, -1, (1 << 64) - 1, 7, 1)))
    assert len(set(first)) > 2


@pytest.mark.parametrize(
    "fields",
    [
        {"logit_bias": {"token": -100.0}},
        {"_bad_words_token_ids": [["token"]]},
        {"bad_words": [["token"]]},
        {"bad_words": ["text"], "_bad_words_token_ids": [["token"]]},
        {"min_tokens": 1, "stop_token_ids": ["token"]},
        {"min_tokens": 1, "_eos_token_id": "token"},
        {"min_tokens": 1, "eos_token_ids": ["token"]},
    ],
    ids=str,
)
def test_a_forbidden_token_is_not_drawn(worker, token, fields):
    def filled(value):
        if isinstance(value, dict):
            return {filled(key): filled(item) for key, item in value.items()}
        if isinstance(value, list):
            return [filled(item) for item in value]
        return token if value == "token" else value

    (drawn,) = draw(worker, greedy(**filled(fields)))
    assert drawn != token


def test_an_ignored_eos_is_a_token_like_any_other(worker, token):
    """vLLM leaves it among _all_stop_token_ids even then."""
    ignored = greedy(min_tokens=1, ignore_eos=True, _all_stop_token_ids={token})
    ours = greedy(min_tokens=1, ignore_eos=True, eos_token_ids=[token])
    named = greedy(min_tokens=1, ignore_eos=True, _eos_token_id=token)
    assert draw(worker, ignored, ours, named) == [token] * 3


def test_nothing_but_the_allowed_tokens_is_drawn(worker):
    assert draw(worker, greedy(allowed_token_ids=[301]), greedy(logit_bias={300: 100.0})) == [301, 300]


def test_a_bad_word_of_two_tokens_is_forbidden_after_its_first(worker, token):
    tokens = {}
    for name, words in (("free", None), ("bound", [[token, None]])):
        if words:
            words[0][1] = tokens["free"][1]
        params = greedy(_bad_words_token_ids=words)
        drawn = first_step(worker, new_request(name, PROMPT, [1], sampling_params=params)).token_ids[0]
        row = (name, None, len(PROMPT), 1)
        drawn += step(worker, scheduler_output({name: 1}, cached=cached_requests(row))).token_ids[0]
        worker.execute(scheduler_output({}, finished_req_ids={name}))
        tokens[name] = drawn
    assert tokens["free"][0] == tokens["bound"][0] == token
    assert tokens["free"][1] != tokens["bound"][1]


def test_penalties_lower_what_was_generated(worker):
    """Of the two tokens that are allowed, the one generated before leads by 1."""
    history = [*OTHER, 300]

    def draw_after_300(req_id, params):
        request = new_request(req_id, OTHER, [1], prefill_token_ids=history, sampling_params=params)
        answer = step(worker, scheduler_output({req_id: len(history)}, [request]))
        worker.execute(scheduler_output({}, finished_req_ids={req_id}))
        return answer

    ids, logprobs, _ = draw_after_300("free", greedy(logprobs=-1)).logprobs
    raw = dict(zip(ids[0].tolist(), logprobs[0].tolist(), strict=True))
    lead = {"allowed_token_ids": [300, 301], "logit_bias": {300: 100.0, 301: 99.0 + raw[300] - raw[301]}}
    penalties = [{}, {"presence_penalty": 2.0}, {"frequency_penalty": 2.0}, {"repetition_penalty": 2.0}]
    drawn = [draw_after_300(str(penalty), greedy(**lead, **penalty)).token_ids for penalty in penalties]
    assert drawn == [[[300]], [[301]], [[301]], [[301]]]


def test_all_of_the_vocabulary_can_be_asked_for(worker):
    answer = first_step(worker, new_request("a", PROMPT, [1], sampling_params=greedy(logprobs=-1, prompt_logprobs=-1)))
    ids, logprobs, _ = answer.logprobs
    assert ids.shape == (1, VOCAB + 1) and sorted(ids[0, 1:].tolist()) == list(range(VOCAB))
    assert answer.prompt_logprobs["a"][1].shape == (len(PROMPT) - 1, VOCAB + 1)
