"""What is not built says so by name, before anything is loaded; what is out of range says its numbers."""

import pytest
from conftest import open_llm, token_prompts

REFUSED = [
    ({"tensor_parallel_size": 2}, "tensor_parallel_size is 2"),
    ({"pipeline_parallel_size": 2}, "pipeline_parallel_size is 2"),
    ({"data_parallel_size": 2}, "data_parallel_size is 2"),
    ({"enable_lora": True}, "--enable-lora is not built"),
    (
        {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 2}},
        "--speculative-config",
    ),
    ({"runner": "pooling", "convert": "embed"}, "--runner pooling is not built"),
    ({"load_format": "dummy"}, "--load-format dummy is not built"),
    ({"hf_overrides": {"rope_theta": 5.0}}, "--hf-overrides is not built"),
    ({"model_impl": "transformers"}, "--model-impl transformers is not built"),
    ({"logprobs_mode": "processed_logprobs"}, "--logprobs-mode processed_logprobs is not built"),
    ({"kv_cache_dtype": "fp8"}, "--kv-cache-dtype fp8 is not built"),
    ({"enable_prompt_embeds": True}, "--enable-prompt-embeds is not built"),
    ({"cpu_offload_gb": 1}, "--cpu-offload-gb 1"),
    ({"dtype": "float32"}, "dtype f32 does not exist on the card"),
    ({"max_model_len": 100000}, "100000"),
    ({"additional": {"thread": 1}}, "unknown key 'thread'"),
    ({"additional": {"platform": "nowhere"}}, "nowhere"),
    ({"additional": {"order": "sideways"}}, "sideways"),
    ({"additional": {"preset": "original"}, "dtype": "bfloat16"}, "needs to be float16"),
]


def complete(model, additional=None, **options):
    """vLLM's configuration as it comes out of the platform's hands."""
    from vllm.engine.arg_utils import EngineArgs

    arguments = EngineArgs(model=str(model), skip_tokenizer_init=True, additional_config=additional or {}, **options)
    return arguments.create_engine_config()


@pytest.mark.parametrize(("options", "text"), REFUSED, ids=lambda value: str(value)[:50])
def test_refused_by_name(options, text, tiny):
    with pytest.raises(Exception) as caught:
        complete(tiny, **options)
    assert text in str(caught.value)


def test_block_size_is_rounded_up_and_defaults_to_128(tiny):
    for given, expected in ((None, 128), (16, 64), (100, 128), (128, 128)):
        assert complete(tiny, block_size=given).cache_config.block_size == expected


def test_the_original_preset_has_its_limits(tiny):
    config = complete(tiny, {"preset": "original"})
    assert config.scheduler_config.max_num_seqs == 4
    assert str(config.model_config.dtype) == "torch.float16"
    assert config.model_config.max_model_len == 1024, "the model's, which is below the original's 2048"
    assert complete(tiny, {"preset": "original"}, max_num_seqs=9).scheduler_config.max_num_seqs == 9


def test_asynchronous_scheduling_is_off_unless_asked_for(tiny):
    for additional, on in (({}, False), ({"async_scheduling": True}, True)):
        scheduler = complete(tiny, additional).scheduler_config
        assert scheduler.async_scheduling == on and scheduler.scheduler_cls.endswith(".SpyreAsyncScheduler") == on


def test_completing_twice_changes_nothing(tiny):
    from vllm.platforms import current_platform

    for additional in ({}, {"preset": "original"}, {"async_scheduling": True}):
        config = complete(tiny, additional, block_size=100)
        shown = repr(config)
        current_platform.check_and_update_config(config)
        assert repr(config) == shown


def test_bad_requests_are_vllms_own_error(tiny):
    from vllm import SamplingParams
    from vllm.exceptions import VLLMValidationError

    with open_llm(tiny, max_model_len=256, max_logprobs=-1) as llm:
        for fields, text in (
            ({"logit_bias": {600: 1.0}}, "600"),
            ({"allowed_token_ids": [502]}, "502"),
            ({"logprob_token_ids": [1, 2]}, "logprob_token_ids"),
            ({"stop_token_ids": [9999]}, "9999"),
        ):
            with pytest.raises(VLLMValidationError, match=text):
                llm.generate(token_prompts([[5]]), SamplingParams(max_tokens=1, **fields), use_tqdm=False)
        good = llm.generate(token_prompts([[5]]), SamplingParams(max_tokens=1), use_tqdm=False)
        assert len(good[0].outputs[0].token_ids) == 1, "the engine goes on"
