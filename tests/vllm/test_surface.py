"""Drift: what the installed vLLM has beside what surface.json says it had."""

import json

from spyre_inference.vllm import surface, versions


def recorded():
    return json.loads(surface.RECORD.read_text())


def test_the_installed_vllm_has_the_recorded_surface():
    assert surface.differences(recorded(), surface.introspect()) == []


def test_the_record_is_of_the_last_tested_version():
    assert recorded()["vllm"] == versions.PASSED[-1].version


def test_every_refused_door_exists():
    assert [path for path, there in recorded()["doors"].items() if not there] == []


def test_a_new_field_is_named():
    found = surface.introspect()
    found["fields"]["vllm.v1.core.sched.output.SchedulerOutput"].append("brand_new")
    del found["fields"]["vllm.sampling_params.SamplingParams"][0]
    found["signatures"]["vllm.v1.worker.worker_base.WorkerBase.__init__"].append("more")
    lines = surface.differences(recorded(), found)
    assert "vllm.v1.core.sched.output.SchedulerOutput: field 'brand_new' is new" in lines
    assert "vllm.sampling_params.SamplingParams: field 'n' is gone" in lines
    assert len(lines) == 3 and "'more'" in lines[-1]
