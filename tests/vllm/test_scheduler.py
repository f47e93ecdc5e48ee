"""Which requests and blocks a failed step takes with it, on a scheduler reduced to what the mixin touches."""

from types import SimpleNamespace

import pytest
from spyre_inference.vllm.scheduler import SHARED, EndsFailedRequests
from vllm.v1.engine import FinishReason
from vllm.v1.request import RequestStatus


class Base:
    def update_from_output(self, scheduler_output, model_runner_output):
        return {}


class Reduced(EndsFailedRequests, Base):
    """Blocks of 4 tokens; ``tables`` names the blocks of each request."""

    block_size = 4

    def __init__(self, tables):
        self.evicted = None
        self.requests = {name: request(name) for name in tables}
        self.running = list(self.requests.values())
        self.kv_cache_manager = SimpleNamespace(
            get_block_ids=lambda name: (tables[name],),
            evict_blocks=lambda blocks: setattr(self, "evicted", set(blocks)),
            block_pool=SimpleNamespace(num_gpu_blocks=10),
        )

    def finish_requests(self, names, status):
        assert status == RequestStatus.FINISHED_ERROR
        return [self.requests.pop(name) for name in names]


def request(name):
    return SimpleNamespace(
        request_id=name,
        client_index=3,
        trace_headers=None,
        take_events=list,
        get_finished_reason=lambda: FinishReason.ERROR,
    )


def step(new=(), cached=()):
    """Lists of (id, computed, scheduled)."""
    return SimpleNamespace(
        scheduled_new_reqs=[SimpleNamespace(req_id=n, num_computed_tokens=c) for n, c, _ in new],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=[n for n, *_ in cached], num_computed_tokens=[c for _, c, _ in cached]
        ),
        num_scheduled_tokens={n: k for n, _, k in (*new, *cached)},
    )


def run(scheduler, output, errors):
    given = scheduler.update_from_output(output, SimpleNamespace(errors=errors))
    return {o.request_id: o.error.message for out in given.values() for o in out.outputs}


def test_a_step_without_errors_is_left_alone():
    scheduler = Reduced({"a": [1, 2]})
    assert run(scheduler, step(cached=[("a", 4, 1)]), {}) == {}
    assert scheduler.evicted is None and "a" in scheduler.requests


def test_the_failed_request_ends_with_its_text_and_its_blocks_are_forgotten():
    scheduler = Reduced({"a": [1, 2], "b": [3]})
    output = step(cached=[("a", 4, 1), ("b", 1, 1)])
    given = scheduler.update_from_output(output, SimpleNamespace(errors={"a": "not finite"}))
    assert list(given) == [3], "the client of the request"
    (ended,) = given[3].outputs
    assert (ended.request_id, ended.finish_reason, ended.error.message) == ("a", FinishReason.ERROR, "not finite")
    assert ended.new_token_ids == [] and ended.error.to_exception().status_code == 500
    assert scheduler.evicted == {1, 2} and list(scheduler.requests) == ["b"]


def test_who_shares_a_block_of_an_earlier_step_goes_on():
    scheduler = Reduced({"a": [1, 2], "b": [1, 5]})
    assert run(scheduler, step(cached=[("a", 4, 1), ("b", 4, 1)]), {"a": "x"}) == {"a": "x"}


@pytest.mark.parametrize(("computed", "scheduled", "shared"), [(3, 1, True), (3, 2, True), (4, 4, False), (0, 9, True)])
def test_who_shares_a_block_of_the_failed_step_ends(computed, scheduled, shared):
    """Block 1 has the positions 0 to 3."""
    scheduler = Reduced({"a": [1, 2, 6], "b": [1, 5]})
    ended = run(scheduler, step(new=[("a", computed, scheduled)], cached=[("b", 7, 1)]), {"a": "x"})
    assert ended == ({"a": "x", "b": SHARED} if shared else {"a": "x"})


def test_a_request_that_was_set_back_meanwhile_empties_the_prefix_cache():
    scheduler = Reduced({"a": [], "b": [5]})
    assert run(scheduler, step(cached=[("a", 4, 1)]), {"a": "x"}) == {"a": "x"}
    assert scheduler.evicted == set(range(1, 10))


def test_a_request_that_ended_meanwhile_is_not_ended_again():
    scheduler = Reduced({"a": [1]})
    assert run(scheduler, step(cached=[("gone", 4, 1)]), {"gone": "x"}) == {}
