"""What is measured: models, requests, and which figure of a run counts."""

import dataclasses
import random


@dataclasses.dataclass(frozen=True)
class Case:
    """So many requests of the same sizes, side by side, none of whose tokens ends it."""

    name: str
    requests: int
    prompt: int
    output: int

    @property
    def metrics(self):
        """The figures that a run gives: "prefill" is prompt tokens over the time to the first token of the answer,
        "decode" tokens per second, of all requests together, while all of them decode."""
        prefill = ["prefill"] if self.requests == 1 and self.prompt >= 512 else []
        return prefill + (["decode"] if self.output > 1 else [])

    def prompts(self, vocabulary):
        """The same ids for every engine: words that are no single bytes and no special tokens."""
        draw = random.Random(f"{self.name} {vocabulary}")
        return [[draw.randrange(300, vocabulary) for _ in range(self.prompt)] for _ in range(self.requests)]


ALL = {
    case.name: case
    for case in (
        Case("short", 1, 32, 128),
        Case("512", 1, 512, 33),
        Case("2048", 1, 2048, 65),
        Case("8192", 1, 8192, 65),
        Case("batch16", 16, 32, 65),
        Case("batch64", 64, 32, 65),
    )
}
OF_SHAPE = {"135m": list(ALL), "1b": list(ALL), "8b": ["512"]}
SAMPLES = {"135m": 5, "1b": 5, "8b": 3}
VOCABULARY = {"135m": 49152, "1b": 128256, "8b": 128256}


@dataclasses.dataclass(frozen=True)
class Model:
    shape: str  # a key of OF_SHAPE
    dtype: str  # f16 or bf16

    @property
    def name(self):
        return f"{self.shape}-{self.dtype}"


def parse_model(text):
    """"135m-bf16", or "135m" for f16 and bf16."""
    shape, dash, dtype = text.lower().partition("-")
    if shape not in OF_SHAPE or dtype not in ("f16", "bf16") and dash:
        raise ValueError(f"'{text}' is no model; known: {', '.join(OF_SHAPE)}, each with -f16 or -bf16")
    return [Model(shape, d) for d in ([dtype] if dtype else ["f16", "bf16"])]


def needed_length(cases):
    """Of the longest sequence, in tokens."""
    return max(case.prompt + case.output for case in cases)


def needed_sequences(cases):
    return max(case.requests for case in cases)
