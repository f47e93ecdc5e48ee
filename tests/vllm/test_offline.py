"""LLM() in one process: the same bits as the native engine, whatever vLLM schedules."""

import gc
import json

import pytest
from conftest import GOLDEN, bits, contracts, metric, native_bits, open_llm, random_prompts, token_prompts


def sampling(**fields):
    from vllm import SamplingParams

    return SamplingParams(**fields)


def test_the_platform_is_ours():
    from vllm.platforms import current_platform

    assert type(current_platform).__name__ == "SpyrePlatform"


# ---------------------------------------------------------------- equal bits

#: Prompts of one token, around a block's size of 64, and long ones; the cache of 11 blocks holds three long ones.
LENGTHS = (1, 20, 63, 64, 65, 129, 150, 200)
ANSWER = {"temperature": 0.0, "max_tokens": 56, "ignore_eos": True, "logprobs": 3, "prompt_logprobs": 2}
PRESSURE = {"max_model_len": 256, "block_size": 64, "max_num_batched_tokens": 192, "num_gpu_blocks_override": 12}


@pytest.fixture(scope="module")
def golden_answers(native):
    """llama_gqa64, bf16."""
    model = GOLDEN / "llama_gqa64"
    vocab = json.loads((model / "config.json").read_text())["vocab_size"]
    prompts = random_prompts(LENGTHS, vocab)
    return model, prompts, native(model, prompts, **ANSWER)


@contracts
def test_answers_are_the_native_engines_bit_for_bit(contract, golden_answers):
    model, prompts, expected = golden_answers
    with open_llm(model, contract, skip_tokenizer_init=True, **PRESSURE) as llm:
        got = llm.generate(token_prompts(prompts), sampling(detokenize=False, **ANSWER), use_tqdm=False)
        preemptions = metric(llm, "vllm:num_preemptions")
    for length, ours, theirs in zip(LENGTHS, got, expected):
        assert ours.outputs[0].token_ids == theirs.token_ids, f"prompt of {length}"
        assert bits(ours.outputs[0].logprobs) == native_bits(theirs.logprobs), f"prompt of {length}"
        if length > 1:
            assert bits(ours.prompt_logprobs)[1:] == native_bits(theirs.prompt_logprobs), f"prompt of {length}"
    assert preemptions > 0, "the cache was to be too small"


@pytest.mark.parametrize("contract", [(False, False), (True, True)], ids=["v1-sync", "v2-async"])
def test_a_real_model_in_f16(contract, smollm2, native):
    prose = json.loads((GOLDEN / "smollm2" / "golden.json").read_text())["prompts"]
    prompts = [prose[name]["token_ids"] for name in ("prose", "dialogue", "completion", "question")]
    wanted = {"temperature": 0.0, "max_tokens": 16, "ignore_eos": True, "logprobs": 2}
    expected = native(smollm2, prompts, **wanted)
    with open_llm(smollm2, contract, max_model_len=512) as llm:
        got = llm.generate(token_prompts(prompts), sampling(**wanted), use_tqdm=False)
    for ours, theirs in zip(got, expected):
        assert ours.outputs[0].token_ids == theirs.token_ids
        assert bits(ours.outputs[0].logprobs) == native_bits(theirs.logprobs)
    golden = prose["completion"]
    assert got[2].outputs[0].token_ids[: len(golden["greedy_token_ids"])] == golden["greedy_token_ids"]


# ---------------------------------------------------------------- one engine for the rest


@pytest.fixture(scope="module")
def llm(tiny):
    with open_llm(tiny, max_model_len=512, block_size=64, num_gpu_blocks_override=64) as made:
        yield made


def test_an_engine_process_answers_the_same(engine_process, tiny, native):
    prompts, *rounds = engine_process
    expected = native(tiny, prompts, temperature=0.0, max_tokens=16, ignore_eos=True, logprobs=1)
    for answers in rounds:
        for ours, theirs in zip(answers, expected):
            assert ours["token_ids"] == theirs.token_ids
            assert ours["logprobs"] == [entry.logprob for entry in theirs.logprobs]


def test_seeded_draws_are_the_native_engines(llm, tiny, native):
    prompts = random_prompts((5, 140), 500)
    wanted = {
        "temperature": 0.9, "top_p": 0.95, "top_k": 50, "min_p": 0.01, "seed": 11, "max_tokens": 24, "ignore_eos": True,
        "presence_penalty": 0.5, "frequency_penalty": 0.25, "repetition_penalty": 1.1, "logit_bias": {7: 2.0, 9: -100.0},
    }  # fmt: skip
    got = llm.generate(token_prompts(prompts), sampling(**wanted), use_tqdm=False)
    expected = native(tiny, prompts, **wanted)
    assert [o.outputs[0].token_ids for o in got] == [e.token_ids for e in expected]


def test_fields_reach_the_sampler(llm):
    def tokens(**fields):
        wanted = sampling(temperature=0.0, max_tokens=6, ignore_eos=True, **fields)
        return llm.generate(token_prompts([[5, 6, 7]]), wanted, use_tqdm=False)[0].outputs[0].token_ids

    plain = tokens()
    assert set(tokens(allowed_token_ids=[20, 21])) <= {20, 21}
    assert plain[0] not in tokens(logit_bias={plain[0]: -100.0})
    assert tokens(stop_token_ids=[plain[0]]) == plain[:1]
    assert tokens(stop_token_ids=[plain[0]], min_tokens=3)[:1] != plain[:1]


def test_two_choices_differ_and_repeat(llm):
    wanted = sampling(n=2, temperature=1.0, seed=3, max_tokens=12, ignore_eos=True)
    first, second = (llm.generate(token_prompts([[5, 6, 7]]), wanted, use_tqdm=False)[0] for _ in range(2))
    assert [c.token_ids for c in first.outputs] == [c.token_ids for c in second.outputs]
    assert first.outputs[0].token_ids != first.outputs[1].token_ids


def test_a_prefix_is_found_and_gives_the_same_answer(llm):
    prompt = token_prompts(random_prompts((200,), 500, seed=99))
    wanted = sampling(temperature=0.0, max_tokens=8, ignore_eos=True)
    cold, warm = (llm.generate(prompt, wanted, use_tqdm=False)[0] for _ in range(2))
    assert (cold.num_cached_tokens, warm.num_cached_tokens) == (0, 192)
    assert cold.outputs[0].token_ids == warm.outputs[0].token_ids


def test_prompt_logprobs_do_not_read_the_prefix_cache(llm):
    prompt = token_prompts(random_prompts((200,), 500, seed=98))
    wanted = sampling(temperature=0.0, max_tokens=2, prompt_logprobs=1)
    cold, again = (llm.generate(prompt, wanted, use_tqdm=False)[0] for _ in range(2))
    assert bits(cold.prompt_logprobs) == bits(again.prompt_logprobs)
    assert len(again.prompt_logprobs) == 200


def test_sleep_wake_up_and_profile_are_clean(llm, caplog_vllm):
    prompt, wanted = token_prompts([[5, 6, 7]]), sampling(temperature=0.0, max_tokens=4, ignore_eos=True)
    before = llm.generate(prompt, wanted, use_tqdm=False)[0].outputs[0].token_ids
    llm.sleep(level=1)
    llm.wake_up()
    llm.start_profile()
    after = llm.generate(prompt, wanted, use_tqdm=False)[0].outputs[0].token_ids
    llm.stop_profile()
    assert after == before
    assert any("profile: " in line and " steps" in line for line in caplog_vllm)


def test_the_line_about_the_card(llm):
    worker = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker
    line = worker.meter.line()
    assert "0 compiles since ready" in line and "are padding" in line and "us (estimate)" in line
    assert "0 failed" in line


def test_what_cannot_be_asked_of_a_worker_is_said(llm):
    with pytest.raises(NotImplementedError, match="no torch module"):
        worker_rpc(llm, "get_model")


def test_memory_is_given_back_without_shutdown(tiny):
    """Each engine has a KV cache of 256 MB, written to by the warm-up or not: address space is what is measured."""

    def virtual_mb():
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmSize"))

    def once():
        with open_llm(tiny, max_model_len=256, kv_cache_memory_bytes=256 << 20) as made:
            made.generate(token_prompts([[5]]), sampling(max_tokens=1), use_tqdm=False)
        gc.collect()
        return virtual_mb()

    once()
    first, second = once(), once()
    assert second - first < 128, f"{second - first} MB stayed"


def worker_rpc(llm, method, *args):
    return llm.collective_rpc(method, args=args)


@pytest.fixture
def caplog_vllm():
    """Lines of the plugin's logger, which vLLM does not hand on to pytest."""
    import logging

    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("vllm.spyre_inference")
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)
