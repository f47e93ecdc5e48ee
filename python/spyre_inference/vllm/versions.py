"""Which versions of vLLM the plugin is known to work with. The one table of them; docs/vllm.md shows it."""

import functools
import os
import re
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from spyre_inference.vllm import logger


class Passed(NamedTuple):
    """A version for which `./run test vllm` has passed."""

    version: str
    date: str
    note: str


PASSED = (Passed("0.33.0", "2026-11-30", "all of tests/vllm: both model runner contracts, both schedulers"),)

#: Set to 1: versions outside of the tested range are warned about, not refused.
ALLOW_UNTESTED = "SPYRE_ALLOW_UNTESTED_VLLM"


def series(text: str) -> tuple[int, int]:
    """(0, 33) of "0.33.1+cpu"; (0, 0) for what is no version."""
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def problem(installed: str) -> str | None:
    """What is wrong with this version of vLLM, and what to do; None inside the tested range."""
    tested = sorted(series(passed.version) for passed in PASSED)
    if tested[0] <= series(installed) <= tested[-1]:
        return None
    names = ", ".join(passed.version for passed in PASSED)
    return (
        f"vLLM {installed} is not among the tested versions ({names}). Install vllm=={PASSED[-1].version}, or another "
        f"spyre-inference; {ALLOW_UNTESTED}=1 takes the risk; VLLM_PLUGINS= (empty) runs vLLM without this plugin"
    )


def check_installed() -> None:
    """Raises RuntimeError for a version of vLLM outside of the tested range; warns when that is allowed."""
    try:
        installed = version("vllm")
    except PackageNotFoundError:  # vllm on the path without its metadata
        installed = "of unknown version"
    text = problem(installed)
    if text is None:
        return
    if os.environ.get(ALLOW_UNTESTED, "") != "1":
        raise RuntimeError(text)
    warn(text)


@functools.cache  # vLLM asks twice
def warn(text: str) -> None:
    logger.warning("%s", text)
