"""The lines for vLLM's log, on stand-ins for the worker."""

import logging
from types import SimpleNamespace

import pytest
from spyre_inference.vllm import report

STEPS = {"steps": 3, "tokens": 70, "failed_steps": 1, "execute_seconds": 0.5, "sample_seconds": 0.25}
SPYRE = {
    "steps": STEPS,
    "artifacts": {"compiles_after_ready": 0},
    "rows": {"body": {"live": 5, "padding": 3}, "head": {"live": 0, "padding": 0}},
    "card_time": {"last_step_us": 7.4},
}


def meter(topics):
    return report.Meter(SimpleNamespace(report=topics.get))


def test_the_line_has_the_account_of_the_card():
    assert meter(SPYRE).line() == (
        "3 steps, 70 tokens, 1 failed; 0 compiles since ready; on a card 37.5% of the body's rows and 0.0% of the head's "
        "are padding; the last step would take it 7 us (estimate)"
    )


def test_topics_that_a_platform_does_not_have_are_left_out():
    assert meter({"steps": STEPS}).line() == "3 steps, 70 tokens, 1 failed"


def test_a_line_at_most_every_ten_seconds_and_only_after_a_step(monkeypatch, caplog):
    now = [100.0]
    monkeypatch.setattr(report.time, "monotonic", lambda: now[0])
    with caplog.at_level(logging.INFO, logger="vllm.spyre_inference"):
        ticking = meter(SPYRE)
        for at, lines in ((100.1, 0), (109.9, 0), (110.0, 1), (110.1, 1), (119.9, 1), (150.0, 2), (151.0, 2)):
            now[0] = at
            ticking.tick()
            assert len(caplog.records) == lines, at


def test_a_profile_is_what_happened_between():
    topics = {"steps": STEPS}
    measuring = meter(topics)
    assert measuring.end_profile() == "it was not started"
    measuring.begin_profile()
    topics["steps"] = {**STEPS, "steps": 13, "tokens": 100, "execute_seconds": 1.75}
    assert measuring.end_profile() == "10 steps, 30 tokens, 0 failed_steps, 1.25 execute_seconds, 0 sample_seconds"
    assert measuring.end_profile() == "it was not started"


@pytest.mark.parametrize(("live", "padding", "share"), [(0, 0, 0.0), (4, 0, 0.0), (1, 3, 0.75)])
def test_padding_share(live, padding, share):
    assert report.padding_share({"body": {"live": live, "padding": padding}}, "body") == share
