"""vLLM's configuration as settings, on stand-ins for vLLM's classes."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from spyre_inference.errors import InvalidArgumentError, UnsupportedError
from spyre_inference.vllm import settings


@dataclass
class CacheConfig:
    block_size: int = 16
    user_specified_block_size: bool = False
    cache_dtype: str = "auto"
    num_gpu_blocks_override: int | None = None
    kv_cache_memory_bytes: int | None = None
    gpu_memory_utilization: float = 0.92


def config(**changes):
    """What vLLM 0.33 hands over for LLM("tiny"), with dotted paths changed."""
    made = SimpleNamespace(
        model_config=SimpleNamespace(
            model="tiny",
            dtype="torch.bfloat16",
            max_model_len=512,
            original_max_model_len=None,
            runner_type="generate",
            model_impl="auto",
            config_format="auto",
            logprobs_mode="raw_logprobs",
            enforce_eager=False,
            hf_text_config=SimpleNamespace(dtype="torch.bfloat16"),
        ),
        cache_config=CacheConfig(),
        parallel_config=SimpleNamespace(
            worker_cls="auto",
            tensor_parallel_size=1,
            pipeline_parallel_size=1,
            data_parallel_size=1,
            world_size=1,
            nnodes=1,
        ),
        scheduler_config=SimpleNamespace(max_num_seqs=256, max_num_batched_tokens=2048, scheduler_cls=None),
        load_config=SimpleNamespace(load_format="auto"),
        compilation_config=SimpleNamespace(compile_sizes=None),
        additional_config={},
    )
    for path, value in changes.items():
        owner, _, name = path.rpartition("__")
        setattr(getattr(made, owner) if owner else made, name, value)
    return made


@pytest.fixture(autouse=True)
def defaults(monkeypatch):
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    monkeypatch.setattr(settings, "default_max_num_seqs", lambda world_size: {256})


def test_what_vllm_filled_in_is_unset():
    got = settings.collect(config())
    assert (got["block_size"], got["max_model_len"], got["token_buckets"]) == (None, None, None)
    assert (got["dtype"], got["max_num_seqs"], got["max_num_batched_tokens"]) == ("bfloat16", 256, 2048)


def test_what_the_user_gave_is_handed_on():
    changes = {
        "cache_config": CacheConfig(block_size=100, user_specified_block_size=True),
        "model_config__original_max_model_len": 400,
        "model_config__max_model_len": 400,
        "parallel_config__tensor_parallel_size": 2,
        "additional_config": {
            "platform": "cpu",
            "order": "tile",
            "threads": 2,
            "checked": True,
            "async_scheduling": True,
        },
    }
    got = settings.collect(config(**changes))
    assert (got["block_size"], got["max_model_len"], got["tensor_parallel_size"]) == (100, 400, 2)
    assert (got["platform"], got["order"], got["threads"], got["checked"]) == ("cpu", "tile", 2, True)
    assert "async_scheduling" not in got, "vLLM's scheduler, no setting of ours"


def test_a_completed_config_is_handed_on_as_it_is():
    changes = {"parallel_config__worker_cls": settings.WORKER, "cache_config": CacheConfig(block_size=128)}
    got = settings.collect(config(additional_config={"preset": "original"}, **changes))
    assert (got["block_size"], got["max_model_len"], got["dtype"], got["max_num_seqs"]) == (128, 512, "bfloat16", 256)


def test_the_original_preset_has_its_own_defaults():
    original = {"additional_config": {"preset": "original"}}
    got = settings.collect(config(**original))
    assert (got["dtype"], got["max_num_seqs"]) == (None, None)
    got = settings.collect(config(scheduler_config__max_num_seqs=8, model_config__dtype="torch.float32", **original))
    assert (got["dtype"], got["max_num_seqs"]) == ("float32", 8), "given by the user: for C++ to judge"


@pytest.mark.parametrize(
    ("cache", "space", "expected"),
    [
        (CacheConfig(), None, {"serving": True}),
        (CacheConfig(), "0", {"serving": True}),
        (CacheConfig(), "2", {"kv_cache_memory_bytes": 2 << 30}),
        (CacheConfig(gpu_memory_utilization=0.5), None, {"gpu_memory_utilization": 0.5}),
        (CacheConfig(gpu_memory_utilization=0.5), "1", {"kv_cache_memory_bytes": 1 << 30}),
        (CacheConfig(kv_cache_memory_bytes=12345), "2", {"kv_cache_memory_bytes": 12345}),
        (CacheConfig(kv_cache_memory_bytes=12345, num_gpu_blocks_override=7), "2", {"num_gpu_blocks_override": 7}),
    ],
)
def test_the_size_of_the_kv_cache(cache, space, expected, monkeypatch):
    if space is not None:
        monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", space)
    assert settings.kv_cache(cache) == expected


def test_a_kv_cache_space_that_is_no_number_is_named(monkeypatch):
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "4 GiB")
    with pytest.raises(InvalidArgumentError, match="VLLM_CPU_KVCACHE_SPACE='4 GiB'"):
        settings.kv_cache(CacheConfig())


def test_compile_sizes_are_token_buckets():
    assert settings.collect(config(compilation_config__compile_sizes=[1, 64]))["token_buckets"] == [1, 64]
    assert settings.collect(config(additional_config={"token_buckets": [2, 8]}))["token_buckets"] == [2, 8]
    with pytest.raises(InvalidArgumentError, match="give one of them"):
        settings.collect(config(compilation_config__compile_sizes=[1], additional_config={"token_buckets": [2]}))
    with pytest.raises(InvalidArgumentError, match="cudagraph_capture_sizes"):
        settings.collect(config(compilation_config__compile_sizes=["cudagraph_capture_sizes"]))


def test_unknown_keys_are_refused_with_the_known_ones():
    with pytest.raises(InvalidArgumentError, match="unknown key 'thread'; known: platform, .*threads"):
        settings.collect(config(additional_config={"thread": 2}))
    with pytest.raises(InvalidArgumentError, match="is a str"):
        settings.collect(config(additional_config="x"))


def test_the_plain_config_is_not_refused():
    settings.refuse_not_built(config())


#: A value for each door that asks for what is not built.
OPEN = {
    "model_config.runner_type": "pooling",
    "model_config.model_impl": SimpleNamespace(value="transformers"),
    "model_config.config_format": "mistral",
    "model_config.logprobs_mode": "processed_logits",
    "model_config.hf_overrides": {"rope_theta": 1.0},
    "load_config.load_format": "dummy",
    "parallel_config.nnodes": 2,
    "parallel_config.prefill_context_parallel_size": 2,
    "parallel_config.decode_context_parallel_size": 2,
    "parallel_config.distributed_executor_backend": "ray",
    "parallel_config.worker_cls": "mine.Worker",
    "scheduler_config.scheduler_cls": "mine.Scheduler",
    "offload_config.uva.cpu_offload_gb": 1.5,
}


@pytest.mark.parametrize("door", settings.NOT_BUILT, ids=lambda door: door.path)
def test_every_door_is_refused_by_name(door):
    made = config()
    owner = made
    *names, last = door.path.split(".")
    for name in names:
        if not hasattr(owner, name):
            setattr(owner, name, SimpleNamespace())
        owner = getattr(owner, name)
    setattr(owner, last, OPEN.get(door.path, True))
    with pytest.raises(UnsupportedError) as caught:
        settings.refuse_not_built(made)
    assert str(caught.value).startswith(door.flag) and door.remedy in str(caught.value)
    for value in door.allowed:
        setattr(owner, last, value)
        settings.refuse_not_built(made)


def test_values_stand_in_the_refusal():
    with pytest.raises(UnsupportedError, match="--load-format dummy is not built"):
        settings.refuse_not_built(config(load_config__load_format="dummy"))


def test_another_dtype_of_the_kv_cache_is_refused():
    settings.refuse_not_built(config(cache_config=CacheConfig(cache_dtype="bfloat16")))
    with pytest.raises(UnsupportedError, match="--kv-cache-dtype fp8 .*bfloat16"):
        settings.refuse_not_built(config(cache_config=CacheConfig(cache_dtype="fp8")))


def test_a_gguf_file_is_refused_with_the_way_out():
    with pytest.raises(UnsupportedError, match="spyre serve models/x.gguf"):
        settings.refuse_not_built(config(model_config__model="models/x.gguf"))


def test_the_texts_of_a_folder(tmp_path):
    (tmp_path / "config.json").write_text('{"a": 1}')
    model = SimpleNamespace(model=str(tmp_path), revision=None)
    assert settings.config_texts(model) == ('{"a": 1}', "")
    (tmp_path / "generation_config.json").write_text("{}")
    assert settings.config_texts(model) == ('{"a": 1}', "{}")
