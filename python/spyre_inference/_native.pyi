"""The native library: what python/native/*.cc exports. Everything raises the exceptions of spyre_inference.errors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

def build_id() -> str: ...
def kernels() -> dict[str, Any]:
    """{"cpu": what it offers, "kernels": what of it they use, "orders": {dtype: its order of summation}}"""

def complete_config(settings: dict[str, Any], config_json: str, generation_json: str = "") -> dict[str, Any]:
    """``settings`` as the platform completes them for a model of which only config.json (its text) is at hand."""

def check_sampling_params(params: Any, vocab_size: int) -> None:
    """Raises for a field that is out of range or not built, naming it; returns when the request can be served."""

class StepOutput:
    """What one step gave. Lists are parallel to ``req_ids``: exactly the scheduled requests, in batch order."""

    req_ids: list[str]
    token_ids: list[list[int]]
    #: (token ids int32, log-probs float32, ranks int32) of shapes [n, k + 1], [n, k + 1], [n]; column 0 is the drawn
    #: token. None when no request asked.
    logprobs: tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]] | None
    #: The same per request, one row for each prompt position from 1 on, in the step that ends its prompt.
    prompt_logprobs: dict[str, tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]]
    #: Why a request failed, one line; it has no tokens. The host is to end it: until then it gives its error again.
    errors: dict[str, str]

class HostedWorker:
    """The worker of a host that schedules by itself. See src/platform/hosted_worker.h for the order of calls."""

    def __init__(self, settings: dict[str, Any]) -> None: ...
    @property
    def config(self) -> dict[str, Any]: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def num_requests(self) -> int: ...
    def load_model(self) -> None: ...
    def kv_cache_spec(self) -> dict[str, int]:
        """{"block_size": tokens, "bytes_per_block": K and V of all layers, "num_groups": 1}"""
    def kv_cache_bytes(self) -> tuple[int, str]:
        """Bytes for the cache, whole blocks, and how they came about."""
    def initialize_kv_cache(self, num_blocks: int) -> None: ...
    def warm_up(self) -> dict[str, Any]:
        """{"programs_compiled": n, "variants_recorded": n, "compile_seconds": s, "execute_seconds": s}"""
    def execute(self, scheduler_output: Any) -> bool:
        """vLLM's SchedulerOutput, by attribute names. True when sample() must follow; False for a step without tokens.

        What cannot be read, or is not built, is an error of the requests it is about; the rest of the step runs. Raises
        InvalidArgumentError when not even the scheduled ids can be read, Error out of order. The GIL is released while
        it computes.
        """
    def sample(self, grammar_output: Any = None) -> StepOutput:
        """Draws the tokens of the step, under the rows of vLLM's GrammarOutput if there is one."""
    def report(self, topic: str) -> Any:
        """Python objects, or None for a topic that the platform does not have; topic "steps" is the worker's own."""

class Engine:
    """The engine of the native server, without HTTP: spyre_inference.Engine is the face of it."""

    def __init__(self, settings: dict[str, Any]) -> None: ...
    @property
    def config(self) -> dict[str, Any]: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def has_tokenizer(self) -> bool: ...
    def encode(self, text: str, add_special_tokens: bool = True, parse_special_tokens: bool = True) -> list[int]: ...
    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str: ...
    def generate(self, prompts: Sequence[Any], params: Any) -> list[dict[str, Any]]:
        """All prompts (str or ids) in one batch; as many params, or one for all. Per prompt the fields of engine.Output, with
        those of engine.Choice in "choices", and log-probs as (token id, log-prob, rank, [(token id, log-prob), ...]).
        Releases the GIL; Ctrl-C ends it."""
    def logits(self, token_ids: Sequence[int]) -> NDArray[np.float32]:
        """[len(token_ids), vocab_size]: row i predicts token i + 1."""
    def report(self, topic: str) -> Any: ...
