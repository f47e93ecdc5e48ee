"""Settings: what is read, what is refused, and that a completed config is read again as it was."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scheduler_steps import GOLDEN

from spyre_inference import _native, errors

CONFIG = (GOLDEN / "llama_gqa64" / "config.json").read_text()
UNCOMPLETED = {
    "model": "",
    "platform": "cpu",
    "preset": "ours",
    "dtype": "auto",
    "max_model_len": None,
    "block_size": None,
    "max_num_seqs": None,
    "max_num_batched_tokens": None,
    "num_gpu_blocks_override": None,
    "kv_cache_memory_bytes": None,
    "gpu_memory_utilization": None,
    "serving": False,
    "token_buckets": None,
    "enforce_eager": False,
    "order": "auto",
    "threads": 0,
    "checked": False,
    "data_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "tensor_parallel_size": 1,
}


def complete(**settings):
    return _native.complete_config({"platform": "cpu"} | settings, CONFIG)


def test_every_setting_is_written_and_limits_are_filled_in():
    completed = complete()
    assert list(completed) == list(UNCOMPLETED)
    assert completed["dtype"] == "float32"  # what the platform cpu takes for auto
    assert completed["max_model_len"] == 512  # the model's
    assert completed["max_num_seqs"] == 256
    filled = {"dtype", "max_model_len", "block_size", "max_num_seqs", "max_num_batched_tokens"}
    assert {name for name in completed if completed[name] != UNCOMPLETED[name]} <= filled


def test_what_was_given_comes_back():
    given = {
        "model": "some/where",
        "preset": "original",
        "dtype": "bfloat16",
        "max_model_len": 300,
        "block_size": 32,
        "max_num_seqs": 3,
        "max_num_batched_tokens": 77,
        "num_gpu_blocks_override": 9,
        "kv_cache_memory_bytes": 1 << 33,
        "gpu_memory_utilization": 0.25,
        "serving": True,
        "token_buckets": [8, 16],
        "enforce_eager": True,
        "order": "pair",
        "threads": 2,
    }
    completed = complete(**given)
    assert {name: completed[name] for name in given} == given
    assert _native.complete_config(completed, CONFIG) == completed


def test_none_is_unset():
    assert complete(**dict.fromkeys(UNCOMPLETED.keys() - {"platform"})) == complete()


def test_numpy_ints_paths_and_tuples_are_taken():
    completed = complete(
        max_model_len=np.int32(300),
        threads=np.uint8(2),
        model=Path("a/b"),
        token_buckets=(np.int64(8), 16),
        gpu_memory_utilization=np.float32(0.5),
    )
    assert completed["max_model_len"] == 300 and completed["threads"] == 2
    assert completed["model"] == "a/b" and completed["token_buckets"] == [8, 16]
    assert completed["gpu_memory_utilization"] == 0.5


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("max_model_len", True, "bool"),
        ("max_model_len", "5", "str"),
        ("max_model_len", 5.0, "float"),
        ("max_model_len", 1 << 70, "64 bits"),
        ("threads", 1 << 40, "1099511627776"),
        ("data_parallel_size", "2", "str"),
        ("serving", 1, "int"),
        ("checked", "yes", "str"),
        ("dtype", "f16", "auto, float16, bfloat16, float32"),
        ("dtype", "torch.float16", "torch.float16"),
        ("preset", "mine", "ours, original"),
        ("platform", 5, "int"),
        ("order", b"pair", "bytes"),
        ("gpu_memory_utilization", "0.5", "str"),
        ("gpu_memory_utilization", True, "bool"),
        ("token_buckets", 8, "list"),
        ("token_buckets", [8, True], "token_buckets[1]"),
        ("token_buckets", "88", "str"),
        ("model", 5, "int"),
    ],
)
def test_a_wrong_value_names_its_setting(name, value, words):
    with pytest.raises(errors.InvalidArgumentError) as error:
        complete(**{name: value})
    assert name in str(error.value) and words in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(errors.InvalidArgumentError) as error:
        complete(max_model_length=5)
    for name in ("max_model_length", *UNCOMPLETED):
        assert name in str(error.value)


def test_what_the_platform_refuses_keeps_its_numbers():
    with pytest.raises(errors.Error, match=r"max_model_len.*513.*512"):
        complete(max_model_len=513)
    with pytest.raises(errors.Error, match=r"tensor_parallel_size.*2"):
        complete(tensor_parallel_size=2)
    with pytest.raises(errors.NotFoundError, match=r"'abacus'.*cpu"):
        _native.complete_config({"platform": "abacus"}, CONFIG)


def test_a_broken_config_is_named():
    with pytest.raises(errors.Error, match=r"config\.json"):
        _native.complete_config({"platform": "cpu"}, CONFIG[:-10])
    with pytest.raises(errors.Error, match=r"generation_config\.json"):
        _native.complete_config({"platform": "cpu"}, CONFIG, "[]")


def test_the_machine_is_described():
    assert _native.build_id().split("-")[0].count(".") == 2
    machine = _native.kernels()
    assert set(machine) == {"cpu", "kernels", "orders"}
    assert machine["orders"]["float16"] == "sequential"
    assert machine["orders"]["bfloat16"] == ("tile" if "amx" in machine["cpu"] else "pair")


def test_plugins_are_looked_for_beside_the_module_and_in_the_path():
    code = (
        "from spyre_inference import _native\n"
        "try: _native.complete_config({'platform': 'abacus'}, '{}')\n"
        "except Exception as error: print(error)\n"
    )
    environment = os.environ | {"SPYRE_PLUGIN_PATH": "/first/folder::/second"}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    beside = Path(_native.__file__).resolve().parent / "lib" / "spyre" / "plugins"
    assert f"looked for in {beside}, /first/folder, /second" in ended.stdout


def test_importing_starts_no_thread_and_says_nothing():
    code = (
        "import os, spyre_inference.errors\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "from spyre_inference import _native\n"
        "_native.build_id()\n"
        "print(before, len(os.listdir('/proc/self/task')))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "1 1\n" and ended.stderr == ""
