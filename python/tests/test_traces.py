"""Recorded scheduler traces of vLLM 0.33 through the module, on the echo platform.

The echo model answers (last + 1) % vocabulary, or under a grammar row the first allowed token from there upwards. It
reads the whole context back through the block table first, so a wrong table, resume or prefix hit is an error of the
request. A translation that confuses two fields must not get through: every confusion below is planted and has to fail.
"""

import json
import os
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scheduler_steps import GOLDEN, SAMPLING_DEFAULTS, TRACES, new_request, scheduler_output

from spyre_inference import _native

LIMITS = ("max_model_len", "block_size", "max_num_seqs", "max_num_batched_tokens")
NAMES = sorted(path.stem for path in TRACES.glob("*.jsonl"))


def read_trace(name: str) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    lines = [json.loads(line) for line in (TRACES / f"{name}.jsonl").read_text().splitlines()]
    return lines[0], lines[1:-1], lines[-1]


def write_model(folder, vocab_size: int, max_model_len: int) -> None:
    """A model that the echo platform can open: it looks at the vocabulary only."""
    config = json.loads((GOLDEN / "llama_gqa64" / "config.json").read_text())
    config |= {"vocab_size": vocab_size, "max_position_embeddings": max_model_len}
    (folder / "config.json").write_text(json.dumps(config))
    header = json.dumps({"unused": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))


def make_worker(folder, header: dict[str, Any]) -> _native.HostedWorker:
    worker = _native.HostedWorker(
        {
            "platform": "echo",
            "model": str(folder),
            **{name: header[name] for name in LIMITS},
        }
    )
    worker.load_model()
    worker.initialize_kv_cache(header["num_blocks"])
    worker.warm_up()
    return worker


def revive_request(recorded: dict[str, Any], vocab_size: int) -> SimpleNamespace:
    """The recording engine drew by its rule whatever the parameters were, which a sampler does when it is greedy."""
    params = SimpleNamespace(**(SAMPLING_DEFAULTS | recorded["sampling_params"]))
    params._all_stop_token_ids = set(params._all_stop_token_ids)
    if params.logit_bias is not None:
        params.logit_bias = {int(token): bias for token, bias in params.logit_bias.items()}
    _native.check_sampling_params(params, vocab_size)
    params.temperature, params.repetition_penalty = 0, 1
    params.presence_penalty = params.frequency_penalty = 0
    fields = {name: recorded[name] for name in ("num_computed_tokens", "prefill_token_ids")}
    (blocks,) = recorded["block_ids"]
    return new_request(recorded["req_id"], recorded["prompt_token_ids"], blocks, sampling_params=params, **fields)


def revive_output(recorded: dict[str, Any], vocab_size: int) -> SimpleNamespace:
    cached = dict(recorded["scheduled_cached_reqs"])
    cached["resumed_req_ids"] = set(cached["resumed_req_ids"])
    cached["new_block_ids"] = [None if blocks is None else tuple(blocks) for blocks in cached["new_block_ids"]]
    fields = {
        name: recorded[name]
        for name in (
            "total_num_scheduled_tokens",
            "has_structured_output_requests",
            "pending_structured_output_tokens",
            "new_block_ids_to_zero",
        )
    }
    return scheduler_output(
        recorded["num_scheduled_tokens"],
        [revive_request(request, vocab_size) for request in recorded["scheduled_new_reqs"]],
        SimpleNamespace(**cached),
        finished_req_ids=set(recorded["finished_req_ids"]),
        preempted_req_ids=set(recorded["preempted_req_ids"] or ()),
        **fields,
    )


def revive_grammar(recorded: dict[str, Any] | None) -> SimpleNamespace | None:
    if recorded is None:
        return None
    words = np.array([row["words"] for row in recorded["rows"]], np.int64).astype(np.uint32).view(np.int32)
    fields = {name: value for name, value in recorded.items() if name not in ("rows", "shape")}
    return SimpleNamespace(**fields, grammar_bitmask=words.reshape(recorded["shape"]))


Confusion = Callable[[SimpleNamespace, SimpleNamespace | None], SimpleNamespace | None]


def replay(folder, name: str, confuse: Confusion = lambda output, grammar: grammar) -> int:
    """Asserts each step's tokens; the number of tokens that were drawn. |confuse| plants a translator's mistake."""
    header, steps, end = read_trace(name)
    write_model(folder, header["vocab_size"], header["max_model_len"])
    worker = make_worker(folder, header)
    drawn = 0
    for number, recorded in enumerate(steps):
        output = revive_output(recorded["scheduler_output"], header["vocab_size"])
        grammar = confuse(output, revive_grammar(recorded["grammar_output"]))
        expected = recorded["sampled"]
        assert worker.execute(output) is (expected is not None), f"step {number}"
        if expected is None:
            continue
        answer = worker.sample(grammar)
        assert answer.errors == {}, f"step {number}"
        given = dict(zip(answer.req_ids, answer.token_ids, strict=True))
        assert given == dict(zip(expected["req_ids"], expected["token_ids"], strict=True)), f"step {number}"
        drawn += sum(map(len, answer.token_ids))
    assert len(steps) == end["steps"]
    assert worker.num_requests == 0
    return drawn


@pytest.fixture(scope="module", autouse=True)
def echo_platform():
    if "SPYRE_PLUGIN_PATH" not in os.environ:
        pytest.skip("the echo platform is a test plugin: SPYRE_PLUGIN_PATH names the folder of the build tree")


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_trace_gives_the_recorded_tokens(name, tmp_path):
    _, steps, end = read_trace(name)
    recorded = sum(len(ids) for s in steps if s["sampled"] for ids in s["sampled"]["token_ids"])
    assert replay(tmp_path, name) == recorded
    assert recorded >= sum(len(output["token_ids"]) for output in end["outputs"]) > 0


def forget_the_resume(output, grammar):
    output.scheduled_cached_reqs.resumed_req_ids = set()
    return grammar


def forget_what_was_generated(output, grammar):
    for request in output.scheduled_new_reqs:
        request.prefill_token_ids = None
    cached = output.scheduled_cached_reqs
    outputs = dict(zip(cached.req_ids, cached.num_output_tokens, strict=True))
    for req_id, tokens in cached.all_token_ids.items():
        cached.all_token_ids[req_id] = tokens[: len(tokens) - outputs[req_id]]
    return grammar


def forget_the_finished(output, grammar):
    output.finished_req_ids = set()
    return grammar


def finish_in_the_next_step():
    late: list[set[str]] = [set()]

    def confuse(output, grammar):
        late.append(output.finished_req_ids)
        output.finished_req_ids = late.pop(0)
        return grammar

    return confuse


def note_tables(output, tables: dict[str, list[int]]) -> None:
    for request in output.scheduled_new_reqs:
        tables[request.req_id] = list(request.block_ids[0])
    cached = output.scheduled_cached_reqs
    for req_id, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
        before = [] if req_id in cached.resumed_req_ids else tables[req_id]
        tables[req_id] = before + (blocks[0] if blocks else [])


def zero_the_blocks_of(field: str):
    """Blocks of preempted and of finished requests keep their content: prefix hits find it."""
    tables: dict[str, list[int]] = {}

    def confuse(output, grammar):
        blocks = {block for req_id in getattr(output, field) for block in tables.get(req_id, [])}
        note_tables(output, tables)
        output.new_block_ids_to_zero = sorted(blocks) or None
        return grammar

    return confuse


def take_rows_in_batch_order(output, grammar):
    if grammar is not None:
        scheduled = list(output.num_scheduled_tokens)
        grammar.structured_output_request_ids = scheduled[: len(grammar.structured_output_request_ids)]
    return grammar


def ignore_the_rows(output, grammar):
    return None


def keep_our_own_start(output, grammar):
    for request in output.scheduled_new_reqs:
        request.num_computed_tokens = 0
    cached = output.scheduled_cached_reqs
    cached.num_computed_tokens = [
        0 if req_id in cached.resumed_req_ids else computed
        for req_id, computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True)
    ]
    return grammar


def sample_in_the_middle_of_a_prompt(output, grammar):
    """A middle chunk looks like the end of a prompt to whoever takes the scheduled tokens for all of it."""
    for request in output.scheduled_new_reqs:
        end = request.num_computed_tokens + output.num_scheduled_tokens[request.req_id]
        request.prompt_token_ids = request.prompt_token_ids[:end]
        if request.prefill_token_ids is not None:
            request.prefill_token_ids = request.prefill_token_ids[:end]
    return grammar


def swap_the_counts(output, grammar):
    cached = output.scheduled_cached_reqs
    cached.num_computed_tokens, cached.num_output_tokens = cached.num_output_tokens, cached.num_computed_tokens
    return grammar


CONFUSIONS: dict[str, Callable[[], Confusion]] = {
    "append_on_resume": lambda: forget_the_resume,
    "prompt_only_on_resume": lambda: forget_what_was_generated,
    "wipe_on_preempt": lambda: zero_the_blocks_of("preempted_req_ids"),
    "wipe_on_finish": lambda: zero_the_blocks_of("finished_req_ids"),
    "finish_last": finish_in_the_next_step,
    "finish_never": lambda: forget_the_finished,
    "sample_every_chunk": lambda: sample_in_the_middle_of_a_prompt,
    "mask_by_batch_row": lambda: take_rows_in_batch_order,
    "no_mask": lambda: ignore_the_rows,
    "keep_start": lambda: keep_our_own_start,
    "swapped_counts": lambda: swap_the_counts,
}


@pytest.mark.parametrize("confusion", CONFUSIONS)
def test_a_confused_translation_is_caught_by_a_trace(confusion, tmp_path):
    caught = []
    for name in NAMES:
        try:
            replay(tmp_path, name, CONFUSIONS[confusion]())
        except AssertionError:
            caught.append(name)
    assert caught, f"no trace catches {confusion}"
