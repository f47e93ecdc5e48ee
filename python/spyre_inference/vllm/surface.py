"""What of vLLM's insides the plugin leans on, written down: so that a new release shows its differences by name.

python -m spyre_inference.vllm.surface            differences between the installed vLLM and surface.json; 1 if any
python -m spyre_inference.vllm.surface --record   write surface.json anew
"""

import argparse
import dataclasses
import importlib
import inspect
import json
import re
import typing
from pathlib import Path
from typing import Any

from spyre_inference.vllm import settings

RECORD = Path(__file__).with_name("surface.json")

#: Every field of these matters: a new one may change what a step means.
CLASSES = (
    "vllm.v1.core.sched.output.SchedulerOutput",
    "vllm.v1.core.sched.output.NewRequestData",
    "vllm.v1.core.sched.output.CachedRequestData",
    "vllm.v1.core.sched.output.GrammarOutput",
    "vllm.v1.core.kv_cache_utils.KVCacheBlockCopy",
    "vllm.v1.outputs.ModelRunnerOutput",
    "vllm.v1.outputs.LogprobsLists",
    "vllm.v1.outputs.LogprobsTensors",
    "vllm.v1.engine.EngineCoreOutput",
    "vllm.v1.engine.EngineCoreOutputs",
    "vllm.v1.kv_cache_interface.KVCacheConfig",
    "vllm.v1.kv_cache_interface.FullAttentionSpec",
    "vllm.v1.worker.worker_base.CompilationTimes",
    "vllm.sampling_params.SamplingParams",
)

#: Called or overridden by us, beside what the platform and the worker override.
FUNCTIONS = (
    "vllm.engine.arg_utils.EngineArgs.get_batch_defaults",
    "vllm.exceptions.VLLMValidationError.__init__",
    "vllm.v1.core.kv_cache_manager.KVCacheManager.evict_blocks",
    "vllm.v1.core.kv_cache_manager.KVCacheManager.get_block_ids",
    "vllm.v1.core.sched.scheduler.Scheduler.finish_requests",
    "vllm.v1.core.sched.scheduler.Scheduler.update_from_output",
    "vllm.v1.worker.worker_base.WorkerBase.__init__",
)


def find(path: str) -> Any:
    """The object of a dotted path. Raises AttributeError or ImportError naming it."""
    names = path.split(".")
    for end in range(len(names) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(names[:end]))
        except ModuleNotFoundError:
            continue
        for name in names[end:]:
            found = getattr(found, name)
        return found
    raise ImportError(path)


def fields(kind: type) -> list[str]:
    """Names of a dataclass, a msgspec structure or a named tuple, in order."""
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    return list(getattr(kind, "__struct_fields__", None) or getattr(kind, "_fields"))


def signature(function: Any) -> list[str]:
    """Parameters as they may be passed: "name", "name=" with a default, "*name", "**name"."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [
        stars.get(p.kind, "") + p.name + ("" if p.default is inspect.Parameter.empty else "=")
        for p in inspect.signature(function).parameters.values()
    ]


def overridden(ours: type, base: type) -> dict[str, list[str] | str]:
    """The base's signatures of what our class defines; "absent" for what the base does not know."""
    result: dict[str, list[str] | str] = {}
    for name, member in vars(ours).items():
        if name.startswith("__") or not callable(getattr(ours, name, None)):
            continue
        there = getattr(base, name, None)
        result[f"{base.__module__}.{base.__name__}.{name}"] = "absent" if there is None else signature(there)
    return result


def door_fields() -> dict[str, bool]:
    """Whether the configuration has each door that is refused: a renamed one would open in silence."""
    from vllm.config import VllmConfig

    def has(kind: type, names: list[str]) -> bool:
        name, rest = names[0], names[1:]
        types = typing.get_type_hints(kind)
        if not rest:
            return (
                name in types or hasattr(kind, name) or bool(re.search(rf"self\.{name}( =|:)", inspect.getsource(kind)))
            )
        return name in types and has(types[name], rest)

    return {door.path: has(VllmConfig, door.path.split(".")) for door in settings.NOT_BUILT}


def introspect() -> dict[str, Any]:
    """What the installed vLLM has, in the form of surface.json."""
    import vllm
    from vllm.platforms.interface import Platform
    from vllm.v1.worker.worker_base import WorkerBase

    from spyre_inference.vllm.platform import SpyrePlatform
    from spyre_inference.vllm.worker import SpyreWorker

    return {
        "vllm": vllm.__version__,
        "fields": {path: fields(find(path)) for path in CLASSES},
        "signatures": {path: signature(find(path)) for path in FUNCTIONS}
        | overridden(SpyrePlatform, Platform)
        | overridden(SpyreWorker, WorkerBase),
        "doors": door_fields(),
    }


def differences(recorded: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """One line each, naming what came, went or changed."""
    lines = []
    for part in ("fields", "signatures", "doors"):
        for name in sorted(recorded[part].keys() | found[part].keys()):
            before, now = recorded[part].get(name), found[part].get(name)
            if before == now:
                continue
            if part == "fields" and before is not None and now is not None:
                lines += [f"{name}: field '{field}' is new" for field in now if field not in before]
                lines += [f"{name}: field '{field}' is gone" for field in before if field not in now]
                if sorted(before) == sorted(now):
                    lines.append(f"{name}: the order of fields changed to {now}")
            else:
                lines.append(f"{name}: was {before}, is {now}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write surface.json from the installed vLLM")
    found = introspect()
    if parser.parse_args().record:
        RECORD.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return 0
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    lines = differences(recorded, found)
    print(f"vLLM {found['vllm']} beside the record of {recorded['vllm']}: {len(lines)} differences", *lines, sep="\n")
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main())
