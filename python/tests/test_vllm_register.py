"""The entry points and the table of versions, without vLLM."""

import importlib.metadata
import logging
import subprocess
import sys
import types

import pytest

from spyre_inference import vllm
from spyre_inference.vllm import versions

TESTED = versions.PASSED[-1].version


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.setattr(vllm, "failure", None)
    monkeypatch.delenv(versions.ALLOW_UNTESTED, raising=False)
    sys.modules.pop("spyre_inference.vllm.refused", None)


@pytest.fixture
def installed(monkeypatch):
    """Says which version of vLLM is installed."""

    def say(version):
        monkeypatch.setattr(versions, "version", lambda name: version)

    return say


def test_a_tested_version_gives_the_platform(installed):
    installed(TESTED)
    assert vllm.register() == vllm.register() == vllm.PLATFORM
    assert vllm.failure is None


@pytest.mark.parametrize("text", ["0.1.0", "99.0", "1.0.0rc1", "of unknown version", "dev"])
def test_another_version_is_refused_with_its_name_and_what_to_do(installed, caplog, text):
    installed(text)
    with caplog.at_level(logging.ERROR):
        assert vllm.register() == vllm.register() == vllm.REFUSED
    assert len(caplog.records) == 1, "said once, however often vLLM asks"
    for part in (f"vLLM {text} ", TESTED, versions.ALLOW_UNTESTED, "VLLM_PLUGINS="):
        assert part in caplog.text


def test_the_refusal_is_raised_where_vllm_lets_it_through(installed):
    installed("99.0")
    module, name = vllm.register().rsplit(".", 1)
    for _ in range(2):  # vLLM may ask again
        with pytest.raises(RuntimeError, match="vLLM 99.0 is not among the tested versions"):
            __import__(module, fromlist=[name])


def test_an_untested_version_can_be_allowed_and_is_warned_about(installed, caplog, monkeypatch):
    installed("99.0")
    monkeypatch.setenv(versions.ALLOW_UNTESTED, "1")
    versions.warn.cache_clear()
    assert vllm.register() == vllm.register() == vllm.PLATFORM
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "vLLM 99.0" in caplog.text


def test_a_native_library_that_does_not_load_is_named(installed, monkeypatch, caplog):
    installed(TESTED)
    monkeypatch.setitem(sys.modules, "spyre_inference._native", None)
    monkeypatch.delattr(sys.modules["spyre_inference"], "_native", raising=False)
    assert vllm.register() == vllm.REFUSED
    assert "_native" in caplog.text


def test_vllm_without_metadata_is_refused_not_raised(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(versions, "version", missing)
    assert vllm.register() == vllm.REFUSED


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0.33.0", (0, 33)), ("0.33.1+cpu", (0, 33)), ("0.34.0rc1", (0, 34)), ("10.2", (10, 2)), ("x", (0, 0))],
)
def test_series(text, expected):
    assert versions.series(text) == expected


def test_registering_imports_neither_vllm_nor_torch():
    script = (
        "import sys, spyre_inference.vllm as v; v.register(); print([m for m in ('vllm', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def platform(monkeypatch):
    """Puts a class in the place of vLLM's current_platform."""

    def say(kind):
        module = types.ModuleType("vllm.platforms")
        module.current_platform = kind()
        monkeypatch.setitem(sys.modules, "vllm", types.ModuleType("vllm"))
        monkeypatch.setitem(sys.modules, "vllm.platforms", module)

    monkeypatch.delenv("VLLM_TARGET_DEVICE", raising=False)
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    return say


@pytest.mark.parametrize(
    ("environment", "cause"),
    [
        ({"VLLM_TARGET_DEVICE": "cpu"}, "VLLM_TARGET_DEVICE=cpu is set"),
        ({"VLLM_PLUGINS": "spyre_inference_ops,other"}, "VLLM_PLUGINS=spyre_inference_ops,other does not name"),
        ({}, "another platform"),
    ],
)
def test_another_platform_in_charge_is_warned_about_with_the_cause(platform, environment, cause, monkeypatch, caplog):
    platform(type("CpuPlatform", (), {}))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    vllm.register_ops()
    (record,) = caplog.records
    assert record.levelname == "WARNING" and "vLLM runs on CpuPlatform" in record.getMessage()
    assert cause in record.getMessage()


def test_our_platform_in_charge_is_no_news(platform, caplog):
    platform(type("SpyrePlatform", (), {"__module__": "spyre_inference.vllm.platform"}))
    vllm.register_ops()
    assert caplog.records == []
