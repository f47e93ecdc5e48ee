"""vLLM's configuration as settings of spyre-inference, and back.

Everything is decided in C++ (``_native.complete_config``). Here stands what each of vLLM's doors is called on our side,
and which doors are refused because nothing is behind them yet.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

from spyre_inference.errors import InvalidArgumentError, UnsupportedError

#: Keys of ``--additional-config``. All but the last are settings of the same name.
ADDITIONAL_KEYS = ("platform", "preset", "order", "threads", "checked", "token_buckets", "async_scheduling")

WORKER = "spyre_inference.vllm.worker.SpyreWorker"
SCHEDULER = "spyre_inference.vllm.scheduler.SpyreScheduler"
ASYNC_SCHEDULER = "spyre_inference.vllm.scheduler.SpyreAsyncScheduler"

#: What size_kv_cache() takes for VLLM_CPU_KVCACHE_SPACE, the original's variable.
GIB = 1 << 30


class Door(NamedTuple):
    """A field of VllmConfig that must be unset (None, False, 0, empty) or one of ``allowed``."""

    path: str
    flag: str
    remedy: str = "leave it out"
    allowed: tuple[Any, ...] = ()


#: Not built. Sizes that C++ checks (parallel sizes, lengths, buckets) are not here: they are handed on.
NOT_BUILT = (
    Door("model_config.runner_type", "--runner", "only text generation is built", ("generate",)),
    Door("model_config.is_multimodal_model", "a multimodal architecture", "only text models are built"),
    Door("model_config.is_encoder_decoder", "an encoder-decoder architecture", "only decoders are built"),
    Door("model_config.quantization", "--quantization", "serve the unquantised checkpoint"),
    Door("model_config.model_impl", "--model-impl", "each architecture has one implementation", ("auto", "vllm")),
    Door("model_config.hf_overrides", "--hf-overrides", "edit config.json: it is read from the file"),
    Door("model_config.hf_config_path", "--hf-config-path", "config.json is read from the model's folder"),
    Door("model_config.model_class_overrides", "--model-class-overrides"),
    Door("model_config.config_format", "--config-format", "config.json is what is read", ("auto", "hf")),
    Door("model_config.logits_processors", "--logits-processors", "tokens are drawn in C++"),
    Door("model_config.logprobs_mode", "--logprobs-mode", "log-probs are those of the raw logits", ("raw_logprobs",)),
    Door("model_config.enable_prompt_embeds", "--enable-prompt-embeds"),
    Door("model_config.return_sampling_mask", "--return-sampling-mask"),
    Door("model_config.enable_trace_replay", "--enable-trace-replay"),
    Door("load_config.load_format", "--load-format", "safetensors are what is read", ("auto", "safetensors", "hf")),
    Door("lora_config", "--enable-lora"),
    Door("speculative_config", "--speculative-config"),
    Door("diffusion_config", "--diffusion-config"),
    Door("engram_config", "--engram-config"),
    Door("watermark_config", "--watermark-config"),
    Door("kv_transfer_config", "--kv-transfer-config"),
    Door("ec_transfer_config", "--ec-transfer-config"),
    Door("weight_transfer_config", "--weight-transfer-config"),
    Door("cache_config.kv_sharing_fast_prefill", "--kv-sharing-fast-prefill"),
    Door("cache_config.kv_offloading_size", "--kv-offloading-size"),
    Door("offload_config.uva.cpu_offload_gb", "--cpu-offload-gb", "weights are in host memory already"),
    Door("offload_config.prefetch.offload_group_size", "--offload-group-size", "weights are in host memory already"),
    Door("parallel_config.prefill_context_parallel_size", "--prefill-context-parallel-size", "use 1", (1,)),
    Door("parallel_config.decode_context_parallel_size", "--decode-context-parallel-size", "use 1", (1,)),
    Door("parallel_config.nnodes", "--nnodes", "use 1", (1,)),
    Door("parallel_config.enable_expert_parallel", "--enable-expert-parallel"),
    Door("parallel_config.enable_eplb", "--enable-eplb"),
    Door("parallel_config.enable_dbo", "--enable-dbo"),
    Door(
        "parallel_config.distributed_executor_backend", "--distributed-executor-backend", "use uni or mp", ("uni", "mp")
    ),
    Door("parallel_config.worker_cls", "--worker-cls", "the platform brings its worker", ("auto", WORKER)),
    Door(
        "scheduler_config.scheduler_cls",
        "--scheduler-cls",
        "the platform brings its scheduler",
        (SCHEDULER, ASYNC_SCHEDULER),
    ),
)


def look_up(config: Any, path: str) -> Any:
    """The value of a dotted path; None where this version of vLLM has no such field."""
    for name in path.split("."):
        config = getattr(config, name, None)
    return config


def refuse_not_built(vllm_config: Any) -> None:
    """Raises UnsupportedError naming the first door that is open and has nothing behind it."""
    for door in NOT_BUILT:
        value = look_up(vllm_config, door.path)
        value = getattr(value, "value", value)  # enumerations
        if not value or value in door.allowed:
            continue
        shown = f" {value}" if isinstance(value, (str, int, float)) and value is not True else ""
        raise UnsupportedError(f"{door.flag}{shown} is not built for Spyre: {door.remedy}")
    model, cache_dtype = vllm_config.model_config, vllm_config.cache_config.cache_dtype
    if cache_dtype not in ("auto", dtype_name(model.dtype)):
        raise UnsupportedError(
            f"--kv-cache-dtype {cache_dtype} is not built for Spyre: the cache has the model's dtype, "
            f"{dtype_name(model.dtype)}; leave it out",
        )
    if model.model.endswith(".gguf"):
        raise UnsupportedError(
            f"{model.model} is a GGUF file, which vLLM cannot describe to its plugins: `spyre serve {model.model}` "
            "serves it, or give vLLM a folder with config.json and safetensors",
        )


def additional(vllm_config: Any) -> dict[str, Any]:
    """``--additional-config``, its keys checked."""
    given = vllm_config.additional_config or {}
    if not isinstance(given, dict):
        raise InvalidArgumentError(f"additional_config is a {type(given).__name__}; it must be a dict")
    for key in given:
        if key not in ADDITIONAL_KEYS:
            known = ", ".join(ADDITIONAL_KEYS)
            raise InvalidArgumentError(f"additional_config: unknown key '{key}'; known: {known}")
    return given


def dtype_name(dtype: Any) -> str:
    """torch.float16 -> "float16"."""
    return str(dtype).removeprefix("torch.")


def collect(vllm_config: Any) -> dict[str, Any]:
    """Settings in the names of ``_native``; None = unset. Before and after ``write_back`` alike.

    vLLM fills in what its user left out before the platform is asked, so "unset" is told from traces that it keeps.
    """
    model, cache = vllm_config.model_config, vllm_config.cache_config
    parallel, scheduler = vllm_config.parallel_config, vllm_config.scheduler_config
    ours = {key: value for key, value in additional(vllm_config).items() if key != "async_scheduling"}
    settings: dict[str, Any] = {
        "model": model.model,
        "dtype": dtype_name(model.dtype),
        "max_model_len": model.max_model_len,
        "block_size": cache.block_size,
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "enforce_eager": bool(model.enforce_eager),
        "token_buckets": token_buckets(vllm_config, ours.pop("token_buckets", None)),
        "tensor_parallel_size": parallel.tensor_parallel_size,
        "pipeline_parallel_size": parallel.pipeline_parallel_size,
        "data_parallel_size": parallel.data_parallel_size,
        **kv_cache(cache),
        **ours,
    }
    if parallel.worker_cls == WORKER:  # completed before: in the API process, or by an earlier call
        return settings
    if not getattr(cache, "user_specified_block_size", False):
        settings["block_size"] = None
    if model.original_max_model_len in (None, -1):
        settings["max_model_len"] = None
    if ours.get("preset") == "original":
        # Where vLLM's defaults stand untouched, the original's are meant: its dtype, its number of sequences.
        if settings["dtype"] == checkpoint_dtype(model):
            settings["dtype"] = None
        if scheduler.max_num_seqs in default_max_num_seqs(parallel.world_size):
            settings["max_num_seqs"] = None
    return settings


def kv_cache(cache: Any) -> dict[str, Any]:
    """The size of the KV cache: the first door that is open counts. ``serving`` alone gives each of max_num_seqs
    requests its max_model_len, at most 4 GiB (what the original takes) and half of what is available."""
    if cache.num_gpu_blocks_override:
        return {"num_gpu_blocks_override": cache.num_gpu_blocks_override}
    if cache.kv_cache_memory_bytes:
        return {"kv_cache_memory_bytes": cache.kv_cache_memory_bytes}
    space = os.environ.get("VLLM_CPU_KVCACHE_SPACE", "")
    if space not in ("", "0"):
        if not space.isdecimal():
            raise InvalidArgumentError(f"VLLM_CPU_KVCACHE_SPACE='{space}' is not a number of GiB")
        return {"kv_cache_memory_bytes": int(space) * GIB}
    if cache.gpu_memory_utilization != type(cache)().gpu_memory_utilization:  # not vLLM's default
        return {"gpu_memory_utilization": cache.gpu_memory_utilization}
    return {"serving": True}


def token_buckets(vllm_config: Any, given: list[int] | None) -> list[int] | None:
    """``compile_sizes`` of --compilation-config are the buckets of the body's rows, as with the original."""
    sizes = vllm_config.compilation_config.compile_sizes or None
    if sizes and any(not isinstance(size, int) for size in sizes):
        raise InvalidArgumentError(f"compile_sizes is {sizes}: only numbers of tokens are built")
    if sizes and given:
        raise InvalidArgumentError("compile_sizes and additional_config token_buckets are one thing: give one of them")
    return sizes or given


def checkpoint_dtype(model: Any) -> str | None:
    dtype = getattr(model.hf_text_config, "dtype", None) or getattr(model.hf_text_config, "torch_dtype", None)
    return None if dtype is None else dtype_name(dtype)


def default_max_num_seqs(world_size: int) -> set[int]:
    """What vLLM may take for max_num_seqs when its user says nothing."""
    from vllm.config import SchedulerConfig
    from vllm.engine.arg_utils import EngineArgs

    return {SchedulerConfig.DEFAULT_MAX_NUM_SEQS, *EngineArgs.get_batch_defaults(world_size)[1].values()}


def write_back(vllm_config: Any, completed: dict[str, Any]) -> None:
    """What ``_native.complete_config`` made of the settings, where vLLM looks for it."""
    import torch
    from vllm.config import CompilationMode, CUDAGraphMode

    model, cache = vllm_config.model_config, vllm_config.cache_config
    parallel, scheduler = vllm_config.parallel_config, vllm_config.scheduler_config
    model.dtype = getattr(torch, completed["dtype"])
    model.max_model_len = min(model.max_model_len, completed["max_model_len"])
    model.disable_cascade_attn = True
    cache.block_size = completed["block_size"]
    scheduler.max_num_seqs = completed["max_num_seqs"]
    scheduler.max_num_batched_tokens = completed["max_num_batched_tokens"]
    # A synchronous worker gains nothing from it, and computes one token too many per answer.
    scheduler.async_scheduling = bool(additional(vllm_config).get("async_scheduling", False))
    scheduler.scheduler_cls = ASYNC_SCHEDULER if scheduler.async_scheduling else SCHEDULER
    parallel.worker_cls = WORKER
    parallel.disable_custom_all_reduce = True
    # There is no torch model to compile or to capture.
    vllm_config.compilation_config.mode = CompilationMode.NONE
    vllm_config.compilation_config.cudagraph_mode = CUDAGraphMode.NONE


def config_texts(model: Any) -> tuple[str, str]:
    """config.json and generation_config.json ("" where there is none) of a folder or of a model in the hub's cache."""
    folder = Path(model.model)
    texts = []
    for name in ("config.json", "generation_config.json"):
        path = folder / name if folder.is_dir() else hub_file(model, name)
        texts.append(path.read_text(encoding="utf-8") if path is not None and path.is_file() else "")
    return texts[0], texts[1]


def hub_file(model: Any, name: str) -> Path | None:
    """A file of a model on the hub, from the cache where it is there; None where the model has no such file."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(model.model, name, revision=model.revision))
    except LocalEntryNotFoundError:  # offline, and not in the cache
        if name == "config.json":
            raise
    except EntryNotFoundError:
        pass
    return None


def model_folder(vllm_config: Any) -> str:
    """The folder with the checkpoint, downloaded into the hub's cache where it is not there."""
    model, load = vllm_config.model_config, vllm_config.load_config
    if Path(model.model).exists():
        return model.model
    from huggingface_hub import snapshot_download

    wanted = ["*.json", "*.safetensors", "*.jinja"]
    return snapshot_download(model.model, revision=model.revision, cache_dir=load.download_dir, allow_patterns=wanted)
