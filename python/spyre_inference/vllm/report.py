"""Lines for vLLM's log: what was compiled, what the card would have done, what a profile saw."""

import json
import time
from typing import Any

from spyre_inference.vllm import logger

SECONDS_BETWEEN_LINES = 10.0


def warm_up_line(warm_up: dict[str, Any]) -> str:
    return (
        f"warm-up: {warm_up['programs_compiled']} programs compiled and {warm_up['variants_recorded']} attention "
        f"variants recorded in {warm_up['compile_seconds']:.2f} s, run in {warm_up['execute_seconds']:.2f} s"
    )


def model_text(host: Any) -> str:
    """The device and what is compiled for it, as JSON."""
    return json.dumps({topic: host.report(topic) for topic in ("device", "artifacts", "memory")}, indent=2)


def padding_share(rows: dict[str, Any], part: str) -> float:
    """Of the rows that the card computes since it was ready, the share that fills up a bucket; 0 before the first."""
    live, padding = rows[part]["live"], rows[part]["padding"]
    return padding / (live + padding) if live + padding else 0.0


class Meter:
    """Writes one line at most every ten seconds, after a step; an idle engine writes none."""

    def __init__(self, host: Any) -> None:
        self.host = host
        self.profile: dict[str, Any] | None = None
        self.start()

    def start(self) -> None:
        self.next_line = time.monotonic() + SECONDS_BETWEEN_LINES

    def tick(self) -> None:
        """After every step; cheap until a line is due."""
        now = time.monotonic()
        if now < self.next_line:
            return
        self.next_line = now + SECONDS_BETWEEN_LINES
        logger.info("%s", self.line())

    def line(self) -> str:
        """Topics that a platform does not have are left out."""
        steps, artifacts, rows, card = map(self.host.report, ("steps", "artifacts", "rows", "card_time"))
        parts = [f"{steps['steps']} steps, {steps['tokens']} tokens, {steps['failed_steps']} failed"]
        if artifacts:
            parts.append(f"{artifacts['compiles_after_ready']} compiles since ready")
        if rows:
            body, head = (padding_share(rows, part) for part in ("body", "head"))
            parts.append(f"on a card {body:.1%} of the body's rows and {head:.1%} of the head's are padding")
        if card:
            parts.append(f"the last step would take it {card['last_step_us']:.0f} us (estimate)")
        return "; ".join(parts)

    def begin_profile(self) -> None:
        self.profile = self.host.report("steps")

    def end_profile(self) -> str:
        """What happened since begin_profile()."""
        before, self.profile = self.profile, None
        if before is None:
            return "it was not started"
        now = self.host.report("steps")
        return ", ".join(f"{now[key] - before[key]:g} {key}" for key in now if isinstance(now[key], (int, float)))
