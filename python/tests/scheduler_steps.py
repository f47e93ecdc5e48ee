"""vLLM's words for one step, made by hand: SimpleNamespace with the fields of vLLM 0.33."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
GOLDEN = REPOSITORY / "tests" / "golden" / "data"
TRACES = REPOSITORY / "tests" / "data" / "vllm_traces"

#: Of the golden model that most tests run, with blocks of 16 tokens: its vocabulary, and two prompts of one block.
BLOCK, VOCAB = 16, 307
PROMPT = list(range(40, 52))
OTHER = list(range(90, 101))

#: What a SamplingParams of vLLM 0.33 holds when its user gave nothing.
SAMPLING_DEFAULTS: dict[str, Any] = {
    "n": 1,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "watermarking": None,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "seed": None,
    "stop": [],
    "stop_token_ids": [],
    "ignore_eos": False,
    "max_tokens": 16,
    "min_tokens": 0,
    "logprobs": None,
    "prompt_logprobs": None,
    "prompt_logprob_token_ids": None,
    "prompt_logprob_start": None,
    "logprob_token_ids": None,
    "flat_logprobs": False,
    "detokenize": True,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "include_stop_str_in_output": False,
    "output_kind": 0,
    "stream_interval": None,
    "skip_clone": False,
    "output_text_buffer_length": 0,
    "_eos_token_id": None,
    "_all_stop_token_ids": set(),
    "_watermarking_skipped": False,
    "structured_outputs": None,
    "logit_bias": None,
    "allowed_token_ids": None,
    "extra_args": None,
    "bad_words": [],
    "_bad_words_token_ids": None,
    "skip_reading_prefix_cache": False,
    "thinking_token_budget": None,
    "repetition_detection": None,
    "routed_experts_prompt_start": 0,
    "trace_decode_token_ids": None,
}


def sampling_params(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(**(SAMPLING_DEFAULTS | fields))


def greedy(**fields: Any) -> SimpleNamespace:
    return sampling_params(**({"temperature": 0.0} | fields))


def new_request(req_id: str, prompt_token_ids: Any, blocks: Sequence[int], **fields: Any) -> SimpleNamespace:
    defaults = {
        "req_id": req_id,
        "prompt_token_ids": prompt_token_ids,
        "mm_features": [],
        "sampling_params": greedy(),
        "pooling_params": None,
        "block_ids": (list(blocks),),
        "num_computed_tokens": 0,
        "lora_request": None,
        "prompt_embeds": None,
        "prompt_is_token_ids": None,
        "prefill_token_ids": None,
        "replay_start": 0,
    }
    return SimpleNamespace(**(defaults | fields))


def cached_requests(*rows: tuple[str, Sequence[int] | None, int, int], **fields: Any) -> SimpleNamespace:
    """Each row: id, new blocks or None, computed tokens, output tokens."""
    defaults = {
        "req_ids": [row[0] for row in rows],
        "resumed_req_ids": set(),
        "new_token_ids": [],
        "all_token_ids": {},
        "new_block_ids": [None if row[1] is None else (list(row[1]),) for row in rows],
        "num_computed_tokens": [row[2] for row in rows],
        "num_output_tokens": [row[3] for row in rows],
    }
    return SimpleNamespace(**(defaults | fields))


def scheduler_output(
    scheduled: dict[str, int],
    new: Iterable[SimpleNamespace] = (),
    cached: SimpleNamespace | None = None,
    **fields: Any,
) -> SimpleNamespace:
    defaults = {
        "scheduled_new_reqs": list(new),
        "scheduled_cached_reqs": cached or cached_requests(),
        "num_scheduled_tokens": scheduled,
        "total_num_scheduled_tokens": sum(scheduled.values()),
        "scheduled_spec_decode_tokens": {},
        "scheduled_encoder_inputs": {},
        "finished_req_ids": set(),
        "free_encoder_mm_hashes": [],
        "encoder_input_updates": {},
        "scheduled_encoder_input_stats": None,
        "preempted_req_ids": None,
        "has_structured_output_requests": False,
        "pending_structured_output_tokens": False,
        "num_invalid_spec_tokens": None,
        "kv_connector_metadata": None,
        "has_sync_kv_loads": False,
        "aux_output_connector_metadata": None,
        "ec_connector_metadata": None,
        "ec_manager_metadata": None,
        "new_block_ids_to_zero": None,
        "kv_cache_block_copies": None,
        "kv_connector_block_state": None,
        "num_spec_tokens_to_schedule": 0,
        "num_common_prefix_blocks": [],
        "skip_drafts": False,
    }
    return SimpleNamespace(**(defaults | fields))


def grammar_output(ids: Sequence[str], bitmask: Any, **fields: Any) -> SimpleNamespace:
    defaults = {
        "structured_output_request_ids": list(ids),
        "grammar_bitmask": bitmask,
        "num_acceptable_drafts": None,
    }
    return SimpleNamespace(**(defaults | fields))


def step(worker: Any, output: SimpleNamespace, grammar: SimpleNamespace | None = None) -> Any:
    """Executes and samples one step that has tokens."""
    assert worker.execute(output) is True
    return worker.sample(grammar)


def first_step(worker: Any, *requests: SimpleNamespace, **fields: Any) -> Any:
    """The whole prompts of |requests| in one step."""
    scheduled = {request.req_id: len(request.prompt_token_ids) for request in requests}
    return step(worker, scheduler_output(scheduled, requests, **fields))
