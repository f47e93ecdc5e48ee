"""A model, and what it says: the engine of the native server without HTTP, with plain Python values in and out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from . import _native
from .errors import Error

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: A text, in which special tokens (``<|im_start|>``) are read as such, or token ids (a list or an integer array).
Prompt: TypeAlias = "str | Sequence[int] | NDArray[np.integer]"


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How tokens are chosen, and where an answer ends. Names, defaults and meanings are vLLM's.

    Values are checked by :meth:`Engine.generate`, which names the field that is out of its range.
    """

    #: Answers for one prompt, which is computed once; answer i draws from (seed, i).
    n: int = 1
    #: Tokens of an answer at most. 0 only scores the prompt; None goes on to the longest length of the model.
    max_tokens: int | None = 16
    #: Before that many tokens nothing ends the answer.
    min_tokens: int = 0
    #: 0 always takes the most probable token (greedy); 1 draws as the model says; more is more surprise.
    temperature: float = 1.0
    #: Draws from the most probable tokens that sum to this share, above 0 to 1.
    top_p: float = 1.0
    #: Draws from that many most probable tokens; 0 or -1: from all.
    top_k: int = 0
    #: Drops tokens below this share of the most probable one's probability, 0 to 1.
    min_p: float = 0.0
    #: The same seed draws the same tokens, whatever else is in the batch. None: another one each time.
    seed: int | None = None
    #: Subtracted from the logit of each token generated before, -2 to 2.
    presence_penalty: float = 0.0
    #: The same times how often, -2 to 2.
    frequency_penalty: float = 0.0
    #: Above 1: tokens of prompt and answer become less likely; above 0.
    repetition_penalty: float = 1.0
    #: Token id to a number that is added to its logit.
    logit_bias: dict[int, float] | None = None
    #: Nothing else is drawn.
    allowed_token_ids: Sequence[int] | None = None
    #: Texts that are never generated.
    bad_words: Sequence[str] | None = None
    #: Texts that end the answer, and are no part of it unless ``include_stop_str_in_output``.
    stop: str | Sequence[str] | None = None
    include_stop_str_in_output: bool = False
    #: Tokens that end the answer; they are the last of its ids, and no part of its text.
    stop_token_ids: Sequence[int] | None = None
    #: Go on after the end of the text (EOS).
    ignore_eos: bool = False
    #: Leave special tokens out of the text.
    skip_special_tokens: bool = True
    #: Per token of the answer its log-probability, and those of this many most probable tokens; -1: of all.
    logprobs: int | None = None
    #: The same for the tokens of the prompt, from the second one on.
    prompt_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """What the model thought of one token: natural logarithms of probabilities, before penalties and temperature."""

    token_id: int
    logprob: float
    #: 1 = the most probable.
    rank: int
    #: (token id, log-prob) of the most probable tokens, descending; as many as were asked for.
    top: list[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer."""

    #: "" for a model without a tokenizer.
    text: str
    #: The token that ended the answer, if one was drawn, is the last.
    token_ids: list[int]
    #: Parallel to ``token_ids``; None when not asked for.
    logprobs: list[TokenLogprob] | None
    #: "stop" (see ``stop_reason``), "length" (max_tokens or the model's longest length), "error".
    finish_reason: str
    #: The stop string or the id of the stop token that ended the answer; None when EOS did.
    stop_reason: int | str | None
    #: What went wrong, one line, when ``finish_reason`` is "error"; what was drawn until then is here.
    error: str | None


@dataclass(frozen=True, slots=True)
class Output:
    """What one prompt gave: ``n`` choices, of which the first one is also at hand by the output's own properties."""

    prompt_token_ids: list[int]
    #: Of prompt tokens 1, 2, ... (the first has none); None when not asked for.
    prompt_logprobs: list[TokenLogprob] | None
    #: Tokens of the prompt that the prefix cache spared.
    num_cached_tokens: int
    choices: list[Choice]

    @property
    def text(self) -> str:
        return self.choices[0].text

    @property
    def token_ids(self) -> list[int]:
        return self.choices[0].token_ids

    @property
    def logprobs(self) -> list[TokenLogprob] | None:
        return self.choices[0].logprobs

    @property
    def finish_reason(self) -> str:
        return self.choices[0].finish_reason

    @property
    def stop_reason(self) -> int | str | None:
        return self.choices[0].stop_reason

    @property
    def error(self) -> str | None:
        return self.choices[0].error


class Engine:
    """A loaded model.

    ``model`` is a folder with config.json and ``*.safetensors``, or a .gguf file. ``platform`` is where it runs:
    spyre (the software device), cpu (the reference interpreter: exact and slow), or a plugin's name. ``dtype`` is
    auto (the file's own 16-bit type; float32 on cpu), float16, bfloat16 or float32 (cpu only). ``settings`` are
    named as the flags of ``spyre serve`` and of vLLM: ``max_model_len``, ``max_num_seqs``,
    ``max_num_batched_tokens``, ``block_size``, ``gpu_memory_utilization``, ``threads``, ...; an unknown name is
    refused with the list of the known ones.

    Any thread may call any method. One call computes at a time, the others wait for it without the GIL; Ctrl-C in
    the main thread ends a call of its own between two steps. Not to be used on both sides of a fork.

    A context manager: leaving it is :meth:`close`. Errors are those of :mod:`spyre_inference.errors`.
    """

    def __init__(
        self, model: str | os.PathLike[str], *, platform: str = "spyre", dtype: str = "auto", **settings: Any
    ) -> None:
        """Loads and compiles. Raises NotFoundError, UnsupportedError (with what is read instead),
        InvalidArgumentError (a setting, by name), ResourceExhaustedError (with the arithmetic)."""
        self._native: _native.Engine | None = None
        self._native = _native.Engine({"model": os.fspath(model), "platform": platform, "dtype": dtype, **settings})

    def _open(self) -> _native.Engine:
        if self._native is None:
            raise Error("the engine is closed", "failed_precondition")
        return self._native

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[Output]:
        """Answers to one prompt or to many, in their order.

        All prompts run together (continuous batching), and each gives what it would give alone. ``params`` are for
        all of them, or a list with one for each; without them vLLM's defaults. A request that cannot be served raises
        InvalidArgumentError or UnsupportedError before anything runs; what goes wrong later is the ``error`` of its
        choice. KeyboardInterrupt ends all of it, and the engine can go on.
        """
        answers = self._open().generate(_prompt_list(prompts), SamplingParams() if params is None else params)
        return [_output(answer) for answer in answers]

    def logits(self, token_ids: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float32]:
        """The logits of every position: float32 ``[len(token_ids), vocab_size]``, where row i is about token i + 1.

        Computed in chunks as any prompt is, with the same bits as in one chunk; slower than :meth:`generate`, since
        each layer is run apart. InvalidArgumentError for an id outside the vocabulary or more than max_model_len ids.
        """
        return self._open().logits(token_ids)

    def encode(self, text: str, add_special_tokens: bool = True, parse_special_tokens: bool = True) -> list[int]:
        """The token ids of ``text``.

        ``add_special_tokens`` adds what the model expects around a text (usually one BOS). ``parse_special_tokens``
        reads ``<|im_end|>`` as that token: switch it off for text of strangers. NotFoundError without a tokenizer.
        """
        return self._open().encode(text, add_special_tokens, parse_special_tokens)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of ``token_ids``; bytes that are no characters give U+FFFD. NotFoundError without a tokenizer."""
        return self._open().decode(token_ids, skip_special_tokens)

    def inspect(self, topic: str = "all") -> Any:
        """What was compiled, laid out and moved, as ``spyre inspect`` tells it.

        Topics of the platform spyre: all, device, artifacts, buckets, rules, layouts, transfers (bytes), memory
        (bytes), warm_up (seconds), work. Raises InvalidArgumentError for a topic that the platform does not have.
        """
        return self._open().report(topic)

    @property
    def config(self) -> dict[str, Any]:
        """The settings as the platform completed them."""
        return self._open().config

    @property
    def vocab_size(self) -> int:
        """Of the logits; the tokenizer may know fewer tokens."""
        return self._open().vocab_size

    @property
    def has_tokenizer(self) -> bool:
        """Without one, prompts are token ids and answers have no text."""
        return self._open().has_tokenizer

    def close(self) -> None:
        """Gives memory and threads back, after a call that is running. Further calls raise; to close again is fine."""
        self._native = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _prompt_list(prompts: Any) -> Any:
    """A text, and numbers in a row, are one prompt."""
    if isinstance(prompts, str):
        return [prompts]
    if hasattr(prompts, "ndim"):
        return [prompts] if prompts.ndim == 1 else list(prompts)
    if isinstance(prompts, Sequence) and len(prompts) > 0 and hasattr(prompts[0], "__index__"):
        return [prompts]
    return prompts


def _logprobs(entries: list[tuple[int, float, int, list[tuple[int, float]]]] | None) -> list[TokenLogprob] | None:
    return None if entries is None else [TokenLogprob(*entry) for entry in entries]


def _output(answer: dict[str, Any]) -> Output:
    choices = [Choice(**{**choice, "logprobs": _logprobs(choice["logprobs"])}) for choice in answer["choices"]]
    return Output(**{**answer, "prompt_logprobs": _logprobs(answer["prompt_logprobs"]), "choices": choices})
