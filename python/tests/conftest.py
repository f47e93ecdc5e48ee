"""A hosted worker with a tiny golden model on the reference platform."""

import pytest
from scheduler_steps import BLOCK, GOLDEN, PROMPT, first_step, new_request, scheduler_output


@pytest.fixture(scope="session")
def session_worker():
    from spyre_inference import _native

    model = str(GOLDEN / "llama_gqa64")
    worker = _native.HostedWorker({"platform": "cpu", "model": model, "block_size": BLOCK, "max_num_seqs": 16})
    worker.load_model()
    worker.initialize_kv_cache(32)
    worker.warm_up()
    return worker


@pytest.fixture
def worker(session_worker):
    """Knows nobody, before the test and after it."""
    yield session_worker
    session_worker.initialize_kv_cache(32)
    session_worker.warm_up()


@pytest.fixture(scope="session")
def token(session_worker):
    """The greedy token after PROMPT."""
    (token,) = first_step(session_worker, new_request("first", PROMPT, [1])).token_ids[0]
    session_worker.execute(scheduler_output({}, finished_req_ids={"first"}))
    return token
