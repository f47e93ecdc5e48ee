"""The program ``spyre``, as a command of the Python environment."""

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

PROGRAM = Path(__file__).with_name("bin") / "spyre"


def main() -> NoReturn:
    """Becomes the program: arguments, environment, process id and exit code are its own."""
    # Python ignores these two, and an ignored signal stays ignored across exec.
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execv(PROGRAM, ["spyre", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"spyre: {PROGRAM} cannot be run: {error.strerror}")
