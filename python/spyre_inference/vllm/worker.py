"""vLLM's worker: every call handed on to the C++ worker, and its answers put into vLLM's classes.

The order of calls: constructor, init_device, load_model, get_kv_cache_spec, determine_available_memory,
initialize_from_config, compile_or_warm_up_model, then execute_model and sample_tokens in turn.
"""

import time
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheSpec
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, LogprobsLists, LogprobsTensors, ModelRunnerOutput
from vllm.v1.worker.worker_base import CompilationTimes, WorkerBase

from spyre_inference import _native
from spyre_inference.errors import UnsupportedError
from spyre_inference.vllm import logger, report, settings

#: The one KV layer that vLLM is told of. Its pages have the bytes of all layers, whose layout is the device's own.
LAYER = "spyre"


@dataclass
class StepResult(ModelRunnerOutput):
    """A step's answer, and for requests that failed the reason. scheduler.py ends those."""

    errors: dict[str, str] = field(default_factory=dict)


class SpyreWorker(WorkerBase):
    """One worker, one card. Any thread at a time; computing releases the GIL."""

    host: _native.HostedWorker

    def init_device(self) -> None:
        self.device = torch.device("cpu")
        wanted = settings.collect(self.vllm_config) | {"model": settings.model_folder(self.vllm_config)}
        self.host = _native.HostedWorker(wanted)
        self.meter = report.Meter(self.host)

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        if load_dummy_weights:
            raise UnsupportedError("dummy weights are not built for Spyre: give a checkpoint")
        began = time.monotonic()
        self.host.load_model()
        logger.info("%s loaded in %.2f s", self.model_config.model, time.monotonic() - began)

    def get_kv_cache_spec(self) -> dict[str, KVCacheSpec]:
        """uint8, so that head sizes are bytes: K and V together are the bytes of a token in all layers."""
        spec = self.host.kv_cache_spec()
        token_bytes, rest = divmod(spec["bytes_per_block"], spec["block_size"])
        assert rest == 0, spec
        key_bytes = token_bytes // 2
        return {
            LAYER: FullAttentionSpec(
                block_size=spec["block_size"],
                num_kv_heads=1,
                head_size=key_bytes,
                head_size_v=token_bytes - key_bytes,
                dtype=torch.uint8,
            )
        }

    def get_supported_kv_cache_layouts(self) -> list[str]:
        """The plainest name: no tensor of vLLM has it."""
        return ["LBNHC"]

    def set_kv_cache_layout(self, *args: Any) -> None: ...

    def determine_available_memory(self) -> int:
        """Bytes for the KV cache, whole blocks."""
        size, arithmetic = self.host.kv_cache_bytes()
        logger.info("KV cache: %s", arithmetic)
        return size

    def get_cache_block_size_bytes(self) -> int:
        return self.host.kv_cache_spec()["bytes_per_block"]

    def update_max_model_len(self, max_model_len: int) -> None:
        """--max-model-len auto: vLLM has lowered it to what the cache holds, and keeps requests below it."""

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        layers = [list(group.layer_names) for group in kv_cache_config.kv_cache_groups]
        assert layers == [[LAYER]], f"KV cache groups {layers}, expected [['{LAYER}']]"
        self.host.initialize_kv_cache(kv_cache_config.num_blocks)

    def compile_or_warm_up_model(self) -> CompilationTimes:
        """Seconds of compiling; nothing is compiled after it."""
        warm_up = self.host.warm_up()
        logger.info("%s", report.warm_up_line(warm_up))
        self.meter.start()
        return CompilationTimes(language_model=warm_up["compile_seconds"], encoder=0.0)

    def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)

    def execute_model(self, scheduler_output: Any) -> ModelRunnerOutput | None:
        """None: sample_tokens must follow. A step without tokens (finished requests only) is over at once."""
        return None if self.host.execute(scheduler_output) else EMPTY_MODEL_RUNNER_OUTPUT

    def sample_tokens(self, grammar_output: Any) -> ModelRunnerOutput:
        step = self.host.sample(grammar_output)
        self.meter.tick()
        return StepResult(
            req_ids=step.req_ids,
            req_id_to_index={request_id: i for i, request_id in enumerate(step.req_ids)},
            sampled_token_ids=step.token_ids,
            logprobs=None if step.logprobs is None else LogprobsLists(*step.logprobs),
            prompt_logprobs_dict={
                request_id: LogprobsTensors(*map(torch.from_numpy, arrays))
                for request_id, arrays in step.prompt_logprobs.items()
            },
            errors=step.errors,
        )

    def take_draft_token_ids(self) -> None:
        return None

    def profile(self, is_start: bool = True, profile_prefix: str | None = None, **overrides: Any) -> None:
        """Between start and stop: steps, tokens and seconds, logged at the stop."""
        if is_start:
            self.meter.begin_profile()
        else:
            logger.info("profile: %s", self.meter.end_profile())

    def sleep(self, level: int = 1) -> None:
        """vLLM has paused its scheduler. Weights and KV cache stay: they are in host memory already."""
        logger.info("sleep(level=%d): paused; weights and KV cache stay where they are", level)

    def wake_up(self, tags: list[str] | None = None) -> None: ...

    def check_health(self) -> None: ...

    def synchronize_device(self) -> None:
        """Nothing is in flight between calls."""

    def supports_draft_weight_updates(self) -> bool:
        return False

    def execute_dummy_batch(self) -> None: ...

    def reset_encoder_cache(self) -> None: ...

    def list_loras(self) -> set[int]:
        return set()

    def get_model(self) -> Any:
        raise UnsupportedError("there is no torch module: the model runs in C++")

    def get_model_inspection(self) -> str:
        return report.model_text(self.host)

    def shutdown(self) -> None:
        """Not always called: the memory also goes with the object."""
        self.__dict__.pop("host", None)
        self.__dict__.pop("meter", None)
