"""Language models on IBM Spyre-class accelerators and their software device.

    from spyre_inference import Engine, SamplingParams

    with Engine("models/SmolLM2-135M-Instruct.Q4_1.gguf") as engine:
        print(engine.generate("The capital of France is", SamplingParams(max_tokens=8))[0].text)

Importing this package starts no thread and loads no library: names are looked up when they are first used. Under vLLM
it is a platform plugin (``spyre_inference.vllm``), and ``spyre`` is the program, as a command.
"""

from __future__ import annotations

TYPE_CHECKING = False  # to a type checker it is true; the module typing alone would cost more than all of this
if TYPE_CHECKING:
    from typing import Any

    from .engine import Choice, Engine, Output, SamplingParams, TokenLogprob
    from .errors import Error, InvalidArgumentError, NotFoundError, ResourceExhaustedError, UnsupportedError

    __version__: str

_MODULES = {
    "engine": ("Choice", "Engine", "Output", "SamplingParams", "TokenLogprob"),
    "errors": ("Error", "InvalidArgumentError", "NotFoundError", "ResourceExhaustedError", "UnsupportedError"),
}
__all__ = [name for names in _MODULES.values() for name in names]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("spyre-inference")
    else:
        module = next((module for module, names in _MODULES.items() if name in names), None)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
