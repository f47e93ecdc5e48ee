"""One step in vLLM's words: what is read, and that what cannot be read ends the requests it is about and nothing else.

On the reference platform with a tiny golden model: the tokens are the model's own.
"""

import array
import gc
import sys
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from scheduler_steps import (
    BLOCK,
    GOLDEN,
    OTHER,
    PROMPT,
    VOCAB,
    cached_requests,
    first_step,
    grammar_output,
    greedy,
    new_request,
    sampling_params,
    scheduler_output,
    step,
)

from spyre_inference import _native, errors

WORDS = (VOCAB + 31) // 32


def only_error(output, req_id: str) -> str:
    assert list(output.errors) == [req_id]
    assert output.token_ids[output.req_ids.index(req_id)] == []
    assert "\n" not in output.errors[req_id]
    return output.errors[req_id]


# ------------------------------------------------------------ the shape of an answer


def test_an_answer_has_the_scheduled_requests_in_their_order(worker, token):
    output = first_step(worker, new_request("b", PROMPT, [1]), new_request("a", OTHER, [2]))
    assert output.req_ids == ["b", "a"]
    assert output.token_ids[0] == [token] and len(output.token_ids[1]) == 1
    assert output.logprobs is None and output.prompt_logprobs == {} and output.errors == {}
    assert worker.num_requests == 2


def test_a_middle_chunk_gives_no_token(worker, token):
    output = step(worker, scheduler_output({"a": 5}, [new_request("a", PROMPT, [1])]))
    assert output.token_ids == [[]] and output.errors == {}
    output = step(worker, scheduler_output({"a": 7}, cached=cached_requests(("a", None, 5, 0))))
    assert output.token_ids == [[token]]


def test_logprobs_are_arrays_as_wide_as_the_widest_request(worker, token):
    output = first_step(
        worker,
        new_request("a", PROMPT, [1], sampling_params=greedy(logprobs=2)),
        new_request("b", OTHER, [2]),
        new_request("c", PROMPT, [3], sampling_params=greedy(logprobs=0)),
        new_request("d", OTHER, [4], sampling_params=greedy(logprobs=4)),
    )
    ids, logprobs, ranks = output.logprobs
    assert (ids.shape, logprobs.shape, ranks.shape) == ((4, 5), (4, 5), (4,))
    assert (ids.dtype, logprobs.dtype, ranks.dtype) == (np.int32, np.float32, np.int32)
    assert [row[0] for row in output.token_ids] == [ids[0, 0], output.token_ids[1][0], ids[2, 0], ids[3, 0]]
    assert ids[0, 0] == ids[0, 1] == token and ranks.tolist() == [1, 0, 1, 1]
    assert np.isfinite(logprobs[0, :3]).all() and np.isneginf(logprobs[0, 3:]).all() and np.isneginf(logprobs[1]).all()
    assert np.isneginf(logprobs[2, 1:]).all() and logprobs[2, 0] == logprobs[0, 0]
    assert (np.diff(logprobs[3, 1:]) <= 0).all()
    ids[:] = 7  # the caller's own memory
    assert (ids == 7).all()


def test_prompt_logprobs_come_with_the_last_chunk_and_agree_with_the_oracle(worker):
    import json

    golden = json.loads((GOLDEN / "llama_gqa64" / "golden.json").read_text())
    prompt = golden["prompt_token_ids"]
    request = new_request("a", prompt, range(1, 10), sampling_params=greedy(prompt_logprobs=5))
    assert step(worker, scheduler_output({"a": 100}, [request])).prompt_logprobs == {}
    rest = cached_requests(("a", None, 100, 0))
    output = step(worker, scheduler_output({"a": len(prompt) - 100}, cached=rest))
    ids, logprobs, ranks = output.prompt_logprobs["a"]
    assert ids.shape == logprobs.shape == (len(prompt) - 1, 6) and ranks.shape == (len(prompt) - 1,)
    assert ids[:, 0].tolist() == prompt[1:]
    assert ids[:, 1:].tolist() == golden["top5_ids"][:-1]
    np.testing.assert_allclose(logprobs[:, 1:], golden["top5_logprobs"][:-1], atol=2e-4)
    for row, rank in enumerate(ranks):
        place = np.flatnonzero(ids[row, 1:] == ids[row, 0])
        assert place.size == 0 and rank > 5 or place.tolist() == [rank - 1]


def test_a_prompt_of_one_token_has_prompt_logprobs_without_rows(worker):
    output = first_step(worker, new_request("a", [5], [1], sampling_params=greedy(prompt_logprobs=3)))
    assert [part.shape for part in output.prompt_logprobs["a"]] == [(0, 4), (0, 4), (0,)]


def test_arrays_outlive_the_answer(worker):
    output = first_step(worker, new_request("a", PROMPT, [1], sampling_params=greedy(logprobs=2)))
    kept = output.logprobs[1]
    before = kept.tolist()
    del output
    gc.collect()
    first_step(worker, new_request("b", OTHER, [2], sampling_params=greedy(logprobs=2)))
    assert kept.tolist() == before


# ------------------------------------------------------------ what is read, whatever it comes in


@pytest.mark.parametrize(
    "container",
    [
        tuple,
        lambda ids: np.array(ids, np.int64),
        lambda ids: np.array(ids, np.int32),
        lambda ids: np.array(ids, np.uint16),
        lambda ids: np.array([ids, ids], np.int64).T.copy()[:, 1],
        lambda ids: np.array(ids[::-1], np.int32)[::-1],
        lambda ids: array.array("q", ids),
        lambda ids: [np.int64(i) for i in ids],
    ],
)
@pytest.mark.parametrize("contract", ["V1", "V2"])
def test_token_ids_come_in_any_container(worker, token, container, contract):
    fields = {"prefill_token_ids": container(PROMPT)} if contract == "V2" else {}
    assert first_step(worker, new_request("a", container(PROMPT), [1], **fields)).token_ids == [[token]]


def test_fields_of_other_versions_may_be_missing(worker, token):
    request = new_request("a", PROMPT, [1])
    output = scheduler_output({"a": len(PROMPT)}, [request])
    for name in ("replay_start", "prefill_token_ids", "prompt_is_token_ids", "prompt_embeds"):
        delattr(request, name)
    for name in ("preempted_req_ids", "kv_cache_block_copies", "new_block_ids_to_zero", "encoder_input_updates",
                 "aux_output_connector_metadata", "has_sync_kv_loads", "skip_drafts"):  # fmt: skip
        delattr(output, name)
    assert step(worker, output).token_ids == [[token]]


def test_the_hosts_live_list_is_copied(worker, token):
    history = list(PROMPT)
    request = new_request("a", PROMPT, [1], prefill_token_ids=history)
    assert worker.execute(scheduler_output({"a": len(PROMPT)}, [request]))
    history.append(1)
    request.prompt_token_ids = []
    assert worker.sample().token_ids == [[token]]
    history[-1] = token
    again = new_request("a", PROMPT, [2], prefill_token_ids=history)  # V2: a resume
    assert len(step(worker, scheduler_output({"a": len(history)}, [again])).token_ids[0]) == 1


def test_a_resume_of_the_first_contract_replaces_the_table(worker, token):
    """Its old block belongs to somebody else by then: read through it, and the context is wrong."""
    expected = first_step(worker, new_request("x", PROMPT, [1])).token_ids[0]
    expected += step(worker, scheduler_output({"x": 1}, cached=cached_requests(("x", None, 12, 1)))).token_ids[0]
    assert first_step(worker, new_request("a", PROMPT, [2])).token_ids == [[token]]
    intruder = new_request("c", OTHER, [2])
    step(worker, scheduler_output({"c": len(OTHER)}, [intruder], preempted_req_ids={"a"}))
    resumed = cached_requests(("a", [3], 0, 1), resumed_req_ids={"a"}, all_token_ids={"a": [*PROMPT, token]})
    assert step(worker, scheduler_output({"a": 13}, cached=resumed)).token_ids == [[expected[1]]]


def test_copies_and_zeroing_reach_the_cache(worker):
    prompt = list(range(60, 60 + BLOCK + 3))
    asked = greedy(logprobs=3)
    whole = first_step(worker, new_request("a", prompt, [1, 2], sampling_params=asked)).logprobs[1]

    def after_hit(req_id, block, **fields):
        request = new_request(req_id, prompt, [block, 3], num_computed_tokens=BLOCK, sampling_params=asked)
        return step(worker, scheduler_output({req_id: 3}, [request], **fields)).logprobs[1]

    copy = SimpleNamespace(src_block_id=1, dst_block_id=4)
    copied = after_hit("b", 4, new_block_ids_to_zero=[4], kv_cache_block_copies=[copy])
    np.testing.assert_allclose(copied, whole, atol=1e-4)
    zeroed = after_hit("c", 1, new_block_ids_to_zero=[1], finished_req_ids={"b"})
    assert np.abs(zeroed - whole).max() > 0.01


def test_a_step_of_finished_ids_only_needs_no_sample(worker):
    first_step(worker, new_request("a", PROMPT, [1]))
    assert worker.execute(scheduler_output({}, finished_req_ids={"a", "never seen"})) is False
    assert worker.num_requests == 0


# ------------------------------------------------------------ faults and their extent


def test_calls_out_of_order_change_nothing(worker, token):
    with pytest.raises(errors.Error, match="sample") as error:
        worker.sample()
    assert error.value.code == "failed_precondition"
    output = scheduler_output({"a": len(PROMPT)}, [new_request("a", PROMPT, [1])])
    worker.execute(output)
    with pytest.raises(errors.Error, match="execute"):
        worker.execute(output)
    assert worker.sample().token_ids == [[token]]


UNSUPPORTED_OF_A_REQUEST = [
    ("lora_request", SimpleNamespace(lora_int_id=1)),
    ("mm_features", [object()]),
    ("pooling_params", object()),
    ("prompt_embeds", np.zeros((3, 4), np.float32)),
    ("prompt_is_token_ids", [True]),
    ("replay_start", 3),
]
WRONG_IN_A_REQUEST = [
    ("prompt_token_ids", None),
    ("prompt_token_ids", "40 41"),
    ("prompt_token_ids", [40, -1]),
    ("prompt_token_ids", [40, 1 << 31]),
    ("prompt_token_ids", [40, 1 << 70]),
    ("prompt_token_ids", [40, True]),
    ("prompt_token_ids", [40, 41.0]),
    ("prompt_token_ids", np.array([40.0])),
    ("prefill_token_ids", [40, None]),
    ("block_ids", [1]),
    ("block_ids", ([-1],)),
    ("num_computed_tokens", "0"),
    ("sampling_params", None),
    ("sampling_params", sampling_params(top_k="1")),
    ("sampling_params", sampling_params(watermarking=True)),
    ("sampling_params", sampling_params(bad_words=["text without tokens"])),
]


@pytest.mark.parametrize(("name", "value"), UNSUPPORTED_OF_A_REQUEST + WRONG_IN_A_REQUEST)
def test_a_request_that_cannot_be_read_ends_alone(worker, token, name, value):
    good = new_request("good", PROMPT, [1])
    bad = new_request("bad", OTHER, [2])
    setattr(bad, name, value)
    scheduled = {"good": len(PROMPT), "bad": len(OTHER)}
    output = step(worker, scheduler_output(scheduled, [bad, good]))
    assert output.req_ids == ["good", "bad"] and output.token_ids[0] == [token]
    reason = only_error(output, "bad")
    assert any(word in reason for word in (name, "top_k", "watermarking", "bad_words"))

    # A host that schedules ahead names it once more.
    both = cached_requests(("good", None, len(PROMPT), 1), ("bad", None, len(OTHER), 1))
    output = step(worker, scheduler_output({"good": 1, "bad": 1}, cached=both))
    assert only_error(output, "bad") == reason and len(output.token_ids[0]) == 1

    # Once finished, its id is like any other.
    output = first_step(worker, new_request("bad", PROMPT, [2]), finished_req_ids={"good", "bad"})
    assert output.token_ids == [[token]] and worker.num_requests == 1


def test_who_would_read_the_blocks_of_a_refused_request_ends_with_it(worker):
    """The host takes a scheduled prompt for a computed one and gives its blocks to the next with the same prefix."""
    prompt = list(range(60, 60 + BLOCK + 3))
    bad = new_request("bad", prompt, [1, 2], lora_request=SimpleNamespace(lora_int_id=1))
    hit = new_request("hit", prompt, [1, 3], num_computed_tokens=BLOCK)
    output = step(worker, scheduler_output({"bad": len(prompt), "hit": 3}, [bad, hit]))
    assert set(output.errors) == {"bad", "hit"} and "unwritten" in output.errors["hit"]


UNSUPPORTED = [
    ("scheduled_spec_decode_tokens", {"good": [1]}),
    ("scheduled_encoder_inputs", {"good": [0]}),
    ("encoder_input_updates", {"good": {0: None}}),
    ("num_invalid_spec_tokens", {"good": 1}),
    ("kv_connector_metadata", object()),
    ("ec_connector_metadata", object()),
    ("aux_output_connector_metadata", object()),
    ("has_sync_kv_loads", True),
    ("block_table_updates", {"good": ([1],)}),
]
WRONG = [
    ("total_num_scheduled_tokens", 99),
    ("total_num_scheduled_tokens", True),
    ("scheduled_new_reqs", None),
    ("scheduled_new_reqs", [SimpleNamespace(no_id=1)]),
    ("scheduled_cached_reqs", None),
    ("preempted_req_ids", [5]),
    ("new_block_ids_to_zero", ["1"]),
    ("kv_cache_block_copies", [(1, 2)]),
]
WRONG_COLUMNS = [
    ("req_ids", [5, 6]),
    ("new_token_ids", [[1], [2]]),
    ("new_block_ids", [None]),
    ("new_block_ids", [None, 5]),
    ("num_computed_tokens", [len(PROMPT), None]),
    ("num_output_tokens", [1, 1.0]),
    ("all_token_ids", [[1], [2]]),
    ("all_token_ids", {"b": ["x"]}),
]


def assert_step_is_refused(worker, name, change):
    first_step(worker, new_request("a", PROMPT, [1]), new_request("b", OTHER, [2]), new_request("gone", PROMPT, [3]))
    both = cached_requests(("a", None, len(PROMPT), 1), ("b", None, len(OTHER), 1))
    output = scheduler_output({"a": 1, "b": 1}, cached=both, finished_req_ids={"gone"})
    change(output)
    answer = step(worker, output)
    assert answer.req_ids == ["a", "b"] and answer.token_ids == [[], []]
    assert answer.errors["a"] == answer.errors["b"] and name in answer.errors["a"]
    assert worker.execute(scheduler_output({}, finished_req_ids={"a", "b"})) is False
    assert worker.num_requests == 0, "finished ids of the refused step were lost"


@pytest.mark.parametrize(("name", "value"), UNSUPPORTED + WRONG)
def test_a_step_that_cannot_be_read_ends_its_requests_only(worker, token, name, value):
    assert_step_is_refused(worker, name if value != WRONG[3][1] else "req_id", lambda o: setattr(o, name, value))
    assert first_step(worker, new_request("a", PROMPT, [1])).token_ids == [[token]]


@pytest.mark.parametrize(("name", "value"), WRONG_COLUMNS)
def test_a_column_that_cannot_be_read_ends_its_step_only(worker, token, name, value):
    assert_step_is_refused(worker, name, lambda o: setattr(o.scheduled_cached_reqs, name, value))
    assert first_step(worker, new_request("a", PROMPT, [1])).token_ids == [[token]]


@pytest.mark.parametrize("value", [None, [("a", 1)], {5: 1}, {"a": "1"}], ids=repr)
def test_without_the_scheduled_ids_there_is_nobody_to_answer(worker, value):
    with pytest.raises(errors.InvalidArgumentError, match="num_scheduled_tokens"):
        worker.execute(scheduler_output({}, num_scheduled_tokens=value, total_num_scheduled_tokens=0))
    with pytest.raises(errors.Error):
        worker.sample()


def test_what_an_attribute_raises_is_the_reason(worker, token):
    class Broken(SimpleNamespace):
        @property
        def scheduled_cached_reqs(self):
            raise RuntimeError("from the\nproperty")

        @scheduled_cached_reqs.setter
        def scheduled_cached_reqs(self, value):
            pass

    output = Broken(**vars(scheduler_output({"a": len(PROMPT)}, [new_request("a", PROMPT, [1])])))
    assert only_error(step(worker, output), "a") == "RuntimeError: from the property"
    assert first_step(worker, new_request("a", PROMPT, [1]), finished_req_ids={"a"}).token_ids == [[token]]


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_common_prefix_blocks", [3]), ("skip_drafts", True), ("free_encoder_mm_hashes", ["h"]),
     ("scheduled_encoder_input_stats", object()), ("has_structured_output_requests", True),
     ("pending_structured_output_tokens", True), ("preempted_req_ids", set()), ("num_invalid_spec_tokens", {})],
)  # fmt: skip
def test_what_changes_nothing_is_left_alone(worker, token, name, value):
    output = scheduler_output({"a": len(PROMPT)}, [new_request("a", PROMPT, [1])], **{name: value})
    assert step(worker, output).token_ids == [[token]]


HOSTILE = [
    None,
    True,
    0,
    -1,
    1 << 70,
    float("nan"),
    "a",
    b"a",
    [None],
    [[]],
    ([-1],),
    {"a": None},
    {5: 5},
    object(),
    np.array([[1]]),
    np.array(["a"], object),
    iter([1]),
    range(1 << 40),
]
NAMES = {
    "step": vars(scheduler_output({})).keys() | {"block_table_updates"},
    "new": vars(new_request("a", [], [])).keys(),
    "cached": vars(cached_requests()).keys(),
    "sampling": vars(greedy()).keys(),
}


@pytest.mark.parametrize(("part", "name"), [(part, name) for part, names in NAMES.items() for name in sorted(names)])
def test_whatever_a_field_holds_the_worker_serves_on(worker, token, part, name):
    """No value of any field raises, where there is somebody to answer, or leaves anything behind."""
    for value in HOSTILE:
        first_step(worker, new_request("b", PROMPT, [1]))
        new = new_request("a", OTHER, [2])
        cached = cached_requests(("b", None, len(PROMPT), 1))
        output = scheduler_output({"a": len(OTHER), "b": 1}, [new], cached)
        setattr({"step": output, "new": new, "cached": cached, "sampling": new.sampling_params}[part], name, value)
        try:
            has_tokens = worker.execute(output)
        except errors.InvalidArgumentError as error:
            assert name == "num_scheduled_tokens" and name in str(error)
        else:
            assert has_tokens is (name != "num_scheduled_tokens" or bool(value))
            if has_tokens:
                answer = worker.sample()
                assert sorted(answer.req_ids) == sorted(output.num_scheduled_tokens)
                assert all("\n" not in text for text in answer.errors.values())
        worker.execute(scheduler_output({}, finished_req_ids={"a", "b"}))
        assert worker.num_requests == 0
        assert first_step(worker, new_request("c", PROMPT, [1])).token_ids == [[token]]
        worker.execute(scheduler_output({}, finished_req_ids={"c"}))


# ------------------------------------------------------------ grammar masks


def allowing(*rows: list[int]) -> np.ndarray:
    mask = np.zeros((len(rows), WORDS * 32), np.uint8)
    for row, ids in enumerate(rows):
        mask[row, ids] = 1
    return np.packbits(mask, axis=1, bitorder="little").view(np.int32)


def two_requests(worker, grammar):
    requests = [new_request("a", PROMPT, [1]), new_request("b", PROMPT, [2])]
    return step(worker, scheduler_output({"a": len(PROMPT), "b": len(PROMPT)}, requests), grammar)


@pytest.mark.parametrize(
    "layout",
    [
        np.ascontiguousarray,
        np.asfortranarray,
        lambda mask: np.repeat(mask, 2, axis=1)[:, ::2],
        lambda mask: mask[::-1].copy()[::-1],
    ],
)
def test_grammar_rows_follow_their_ids_in_any_layout(worker, layout):
    mask = layout(allowing([7], [301]))
    assert two_requests(worker, grammar_output(["b", "a"], mask)).token_ids == [[301], [7]]


def test_who_has_no_row_is_free(worker, token):
    output = two_requests(worker, grammar_output(["b"], allowing([7]), num_acceptable_drafts=[0]))
    assert output.token_ids == [[token], [7]]


def test_no_rows_are_no_mask(worker, token):
    assert two_requests(worker, grammar_output([], np.zeros((0, WORDS), np.int32))).token_ids == [[token], [token]]


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (allowing([7], [8]), "2 rows for 1 requests"),
        (allowing([7]).astype(np.int64), "int32"),
        (allowing([7])[0], "int32"),
        ([[1] * WORDS], "list"),
        (None, "NoneType"),
    ],
    ids=["drafts", "int64", "one dimension", "list", "None"],
)
def test_a_mask_that_cannot_be_read_ends_its_step_only(worker, token, mask, words):
    output = two_requests(worker, grammar_output(["a"], mask))
    assert output.token_ids == [[], []] and set(output.errors) == {"a", "b"}
    assert words in output.errors["a"]
    assert first_step(worker, new_request("a", PROMPT, [1]), finished_req_ids={"a", "b"}).token_ids == [[token]]


def test_a_mask_that_does_not_fit_ends_those_it_names(worker, token):
    output = two_requests(worker, grammar_output(["a"], allowing([7])[:, :-1].copy()))
    assert str(WORDS) in only_error(output, "a") and output.token_ids[1] == [token]


# ------------------------------------------------------------ Python's side of it


def test_the_gil_is_free_while_a_step_is_computed(worker):
    """With the switch interval out of reach, another thread runs only where the GIL is given up."""
    go, seen = threading.Event(), threading.Event()
    waiting = threading.Thread(target=lambda: (go.wait(), seen.set()))
    interval = sys.getswitchinterval()
    prompt = [i % VOCAB for i in range(400)]
    output = scheduler_output({"a": 400}, [new_request("a", prompt, range(1, 26))])
    waiting.start()
    sys.setswitchinterval(1000)
    try:
        go.set()
        worker.execute(output)
        ran = seen.is_set()
    finally:
        sys.setswitchinterval(interval)
    worker.sample()
    waiting.join()
    assert ran


def test_nothing_of_a_step_is_kept_alive(worker):
    class Output(SimpleNamespace):
        pass

    output = Output(**vars(scheduler_output({"a": len(PROMPT)}, [new_request("a", PROMPT, [1])])))
    gone = weakref.ref(output)
    worker.execute(output)
    del output
    assert gone() is None
    worker.sample()


def test_reports_are_python_objects(worker):
    steps = worker.report("steps")
    assert isinstance(steps, dict) and isinstance(steps["steps"], int)
    assert worker.report("no such topic") is None
    assert isinstance(worker.report("memory"), dict)


def test_stages_have_an_order():
    worker = _native.HostedWorker({"platform": "cpu", "model": str(GOLDEN / "llama_gqa64")})
    assert worker.vocab_size == VOCAB and worker.config["max_model_len"] == 512
    with pytest.raises(errors.Error, match="load_model"):
        worker.kv_cache_spec()
    worker.load_model()
    spec = worker.kv_cache_spec()
    assert spec["num_groups"] == 1 and spec["block_size"] == worker.config["block_size"]
    size, arithmetic = worker.kv_cache_bytes()
    assert size % spec["bytes_per_block"] == 0 and str(spec["bytes_per_block"]) in arithmetic
    worker.initialize_kv_cache(size // spec["bytes_per_block"])
    assert set(worker.warm_up()) == {"programs_compiled", "variants_recorded", "compile_seconds", "execute_seconds"}


def test_a_model_that_is_not_there_is_named(tmp_path):
    with pytest.raises(errors.NotFoundError, match="nowhere"):
        _native.HostedWorker({"platform": "cpu", "model": str(tmp_path / "nowhere")})
