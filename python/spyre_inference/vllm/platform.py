"""The platform that vLLM sees: a CPU to torch, and a worker of our own."""

import re
from typing import Any

import torch
from vllm.exceptions import VLLMValidationError
from vllm.platforms.interface import Platform, PlatformEnum

from spyre_inference import _native
from spyre_inference.errors import Error
from spyre_inference.vllm import logger, settings


class SpyrePlatform(Platform):
    """Class methods as vLLM's Platform documents them. No tensor of vLLM ever lies on the device."""

    _enum = PlatformEnum.OOT
    device_name = "spyre"
    device_type = "cpu"
    dispatch_key = "CPU"
    dist_backend = "gloo"
    device_control_env_var = "SPYRE_DEVICES"
    supported_quantization: list[str] = []
    # Else the rank of a token would be compiled, which wants a C++ compiler at run time.
    simple_compile_backend = "eager"

    #: The largest vocabulary of this process's models: requests are checked before a model is named.
    vocab_size = 0

    @property
    def supported_dtypes(self) -> list[torch.dtype]:
        """The first is what an fp32 checkpoint becomes, except in families that overflow it."""
        return [torch.float16, torch.bfloat16]

    @classmethod
    def import_kernels(cls) -> None: ...

    @classmethod
    def import_ir_kernels(cls) -> None: ...

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        """Completes the config or raises, naming the setting. Runs in the API process and again in the engine's."""
        model = vllm_config.model_config
        if model is None:
            return
        settings.refuse_not_built(vllm_config)
        wanted_async = vllm_config.scheduler_config.async_scheduling
        completed = _native.complete_config(settings.collect(vllm_config), *settings.config_texts(model))
        settings.write_back(vllm_config, completed)
        if wanted_async and not vllm_config.scheduler_config.async_scheduling:
            logger.info(
                "asynchronous scheduling is off; --additional-config '{\"async_scheduling\": true}' turns it on"
            )
        cls.vocab_size = max(cls.vocab_size, model.get_vocab_size())

    @classmethod
    def update_block_size_for_backend(cls, vllm_config: Any) -> None:
        """Nothing to do: the block size was settled with the rest of the config."""

    @classmethod
    def validate_request(cls, processed_inputs: Any, params: Any) -> None:
        """Raises vLLM's own error for a bad request, 400 at the server."""
        if not hasattr(params, "temperature"):
            raise VLLMValidationError("pooling is not built for Spyre: only text generation is")
        try:
            _native.check_sampling_params(params, cls.vocab_size)
        except Error as error:
            field = re.match(r"\w*", str(error))[0]
            known = field if hasattr(params, field) else None
            raise VLLMValidationError(str(error), parameter=known, value=known and getattr(params, known)) from None

    @classmethod
    def get_attn_backend_cls(
        cls, selected_backend: Any, attn_selector_config: Any, num_heads: int | None = None
    ) -> str:
        """Never used; vLLM only wants to see that there is one."""
        return "vllm.v1.attention.backends.cpu_attn.CPUAttentionBackend"

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        return "spyre"

    @classmethod
    def get_device_uuid(cls, device_id: int = 0) -> str:
        return f"spyre-{device_id}"

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        """vLLM chooses its batch defaults by it: 0 gives the same ones on every host, 256 sequences."""
        return 0

    @classmethod
    def get_current_memory_usage(cls, device: Any = None) -> float:
        return 0.0

    @classmethod
    def set_device(cls, device: Any) -> None: ...

    @classmethod
    def manual_seed_all(cls, seed: int) -> None:
        """Nothing to do: each request draws from its own seed."""

    @classmethod
    def is_pin_memory_available(cls) -> bool:
        return False

    @classmethod
    def support_hybrid_kv_cache(cls) -> bool:
        return True
