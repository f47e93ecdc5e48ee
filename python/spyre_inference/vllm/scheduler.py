"""vLLM's schedulers, with an end for requests that failed in a step. vLLM knows none: an exception ends its engine.

A failed request's blocks may hold anything, and vLLM publishes blocks in its prefix cache when it schedules them,
before they are computed. So they are taken out of that cache, and whoever shares a block of the failed step ends too.
"""

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.request import RequestStatus

from spyre_inference.vllm import logger

#: Since 0.33. Before it a client sees finish_reason "error", and the reason is in the log alone.
HAS_REASON = "error" in EngineCoreOutput.__struct_fields__

SHARED = "it reads a KV block that a failed request was to write in the same step"


class EndsFailedRequests:
    """A mixin before Scheduler or AsyncScheduler. Reads StepResult.errors."""

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> dict[int, EngineCoreOutputs]:
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        errors = getattr(model_runner_output, "errors", None)
        if errors:
            self.end_failed(errors, scheduler_output, outputs)
        return outputs

    def end_failed(self, errors: dict[str, str], scheduler_output: Any, outputs: dict[int, EngineCoreOutputs]) -> None:
        """Ends the requests of ``errors``, and their partners in misfortune, with an error for their clients."""
        errors = {request_id: text for request_id, text in errors.items() if request_id in self.requests}
        written = self.forget_blocks(errors, scheduler_output)
        for request in self.running:
            if request.request_id not in errors and written & self.block_ids_of(request.request_id):
                errors[request.request_id] = SHARED
        ended = [self.requests[request_id] for request_id in errors]
        self.finish_requests(list(errors), RequestStatus.FINISHED_ERROR)
        for request in ended:
            text = errors[request.request_id]
            logger.error("request %s failed: %s", request.request_id, text)
            output = EngineCoreOutput(
                request_id=request.request_id,
                new_token_ids=[],
                finish_reason=request.get_finished_reason(),
                events=request.take_events(),
                trace_headers=request.trace_headers,
            )
            if HAS_REASON:
                from vllm.outputs import RequestError

                output.error = RequestError(code="internal_error", message=text)
            outputs.setdefault(request.client_index, EngineCoreOutputs()).outputs.append(output)

    def forget_blocks(self, request_ids: Any, scheduler_output: Any) -> set[int]:
        """Takes the blocks of these requests out of the prefix cache. Returns those that this step was to write."""
        begins = {new.req_id: new.num_computed_tokens for new in scheduler_output.scheduled_new_reqs}
        cached = scheduler_output.scheduled_cached_reqs
        begins.update(zip(cached.req_ids, cached.num_computed_tokens))
        size = self.block_size
        held: set[int] = set()
        written: set[int] = set()
        for request_id in request_ids:
            blocks = self.kv_cache_manager.get_block_ids(request_id)[0]
            if not blocks:
                # Set back meanwhile (asynchronous scheduling only): which blocks it held is no longer known.
                held.update(range(1, self.kv_cache_manager.block_pool.num_gpu_blocks))
            held.update(blocks)
            begin = begins.get(request_id, 0)
            end = begin + scheduler_output.num_scheduled_tokens.get(request_id, 0)
            written.update(blocks[begin // size : -(-end // size)])
        self.kv_cache_manager.evict_blocks(held)
        return written

    def block_ids_of(self, request_id: str) -> set[int]:
        return set(self.kv_cache_manager.get_block_ids(request_id)[0])


class SpyreScheduler(EndsFailedRequests, Scheduler):
    """The synchronous scheduler."""


class SpyreAsyncScheduler(EndsFailedRequests, AsyncScheduler):
    """The asynchronous one, with additional_config async_scheduling."""
