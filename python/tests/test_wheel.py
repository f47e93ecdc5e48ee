"""The wheel as a package: what is in it, that it carries its libraries, and its commands."""

import importlib.metadata
import os
import re
import signal
import struct
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import spyre_inference

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(spyre_inference.__file__).parent
SPYRE = Path(sysconfig.get_path("scripts")) / "spyre"
MODEL = ROOT / "tests/golden/data/llama_gqa64"
#: What every system of a manylinux tag has.
OF_THE_SYSTEM = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "ld-linux-x86-64.so.2"}


@pytest.fixture(scope="module")
def wheel():
    path = os.environ.get("SPYRE_TEST_WHEEL")
    if not path:
        pytest.skip("SPYRE_TEST_WHEEL names no wheel: ./run test wheel does")
    with zipfile.ZipFile(path) as archive:
        yield archive


def dynamic_section(elf):
    """{"NEEDED": [...], "RUNPATH": [...], "SONAME": [...]} of a 64-bit little-endian ELF file."""
    assert elf[:6] == b"\x7fELF\x02\x01"
    (at,), (size, count) = struct.unpack_from("<Q", elf, 32), struct.unpack_from("<HH", elf, 54)
    segments = [struct.unpack_from("<IIQQQQQQ", elf, at + i * size) for i in range(count)]
    loads = [s for s in segments if s[0] == 1]
    (dynamic,) = [s for s in segments if s[0] == 2]
    entries = [struct.unpack_from("<QQ", elf, dynamic[2] + i) for i in range(0, dynamic[5], 16)]
    strings = next(value for tag, value in entries if tag == 5)
    strings = next(strings - s[3] + s[2] for s in loads if s[3] <= strings < s[3] + s[5])
    found = {"NEEDED": [], "RUNPATH": [], "SONAME": []}
    names = {1: "NEEDED", 14: "SONAME", 15: "RUNPATH", 29: "RUNPATH"}
    for tag, value in entries:
        if tag == 0:
            break
        if tag in names:
            found[names[tag]].append(elf[strings + value : elf.index(b"\0", strings + value)].decode())
    return found


def elves(wheel):
    files = {name: wheel.read(name) for name in wheel.namelist()}
    return {name: dynamic_section(data) for name, data in files.items() if data[:4] == b"\x7fELF"}


def test_the_wheel_holds_what_it_should_and_nothing_else(wheel):
    names = [name for name in wheel.namelist() if ".dist-info/" not in name and not name.endswith("/")]
    assert len(names) == len(set(names))
    native = [name for name in names if not name.endswith((".py", ".pyi", "py.typed", "vllm/surface.json"))]
    patterns = [
        r"spyre_inference/_native\.(abi3|cpython-\d+-x86_64-linux-gnu)\.so",
        r"spyre_inference/bin/spyre",
        r"spyre_inference/lib/libspyre_core\.so\.\d+\.\d+\.\d+",
        r"spyre_inference/lib/spyre/plugins/libspyre_platform\.so",
        r"spyre_inference/lib/spyre/plugins/spyre\.json",
        r"spyre_inference\.libs/libfmt-[0-9a-f]+\.so\.[\d.]+",
        r"spyre_inference\.libs/libspdlog-[0-9a-f]+\.so\.[\d.]+",
    ]
    for pattern in patterns:
        assert len([name for name in native if re.fullmatch(pattern, name)]) == 1, (pattern, native)
    assert len(native) == len(patterns), native
    assert {"spyre_inference/__init__.py", "spyre_inference/_native.pyi", "spyre_inference/py.typed"} <= set(names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel.namelist())
    mode = wheel.getinfo("spyre_inference/bin/spyre").external_attr >> 16
    assert mode & 0o111 == 0o111


def test_the_tag_is_true(wheel):
    name = Path(wheel.filename).name
    assert re.search(r"-manylinux_2_\d+_x86_64\.whl$", name), name
    stable = any(re.fullmatch(r".*/_native\.abi3\.so", entry) for entry in wheel.namelist())
    assert stable == ("-cp312-abi3-" in name)
    assert stable or f"-cp3{sys.version_info.minor}-cp3{sys.version_info.minor}-" in name


def test_every_library_is_found_inside_the_wheel_or_on_any_system(wheel):
    found = elves(wheel)
    by_folder = {}
    for name in found:
        by_folder.setdefault(os.path.dirname(name), set()).add(os.path.basename(name))
    for name, dynamic in found.items():
        folders = [path for entry in dynamic["RUNPATH"] for path in entry.split(":")]
        assert all(path.split("/")[0] == "$ORIGIN" for path in folders), (name, folders)
        here = [os.path.normpath(path.replace("$ORIGIN", os.path.dirname(name))) for path in folders]
        for library in dynamic["NEEDED"]:
            assert library in OF_THE_SYSTEM or any(library in by_folder.get(path, ()) for path in here), (name, library)
    core = next(name for name in found if "libspyre_core" in name)
    assert found[core]["SONAME"] == [os.path.basename(core)]
    users = {os.path.basename(name) for name, dynamic in found.items() if os.path.basename(core) in dynamic["NEEDED"]}
    assert len(users) == 3, users  # module, program, plugin


@pytest.mark.parametrize("with_test_plugins", [False, True])
def test_no_library_of_this_process_is_there_twice(with_test_plugins):
    environment = dict(os.environ)
    plugins = environment.pop("SPYRE_PLUGIN_PATH", None)
    if with_test_plugins:
        if not plugins or not Path(plugins).is_dir():
            pytest.skip("SPYRE_PLUGIN_PATH names no folder of test plugins: ./run test wheel does")
        environment["SPYRE_PLUGIN_PATH"] = plugins
    code = (
        "import spyre_inference, sys\n"
        "with spyre_inference.Engine(sys.argv[1], platform=sys.argv[2], threads=1): pass\n"
        "print(*{line.split()[-1] for line in open('/proc/self/maps') if '.so' in line}, sep='\\n')\n"
    )
    command = [sys.executable, "-c", code, MODEL, "echo" if with_test_plugins else "spyre"]
    maps = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split()
    # A plugin of the build tree brings the system's fmt along, which has no state; the core there can be only one of.
    shipped = ["libspyre_core"] if with_test_plugins else ["libspyre_core", "libspyre_platform", "libfmt", "libspdlog"]
    for library in shipped:
        paths = [path for path in maps if library in os.path.basename(path)]
        assert len(paths) == 1 and Path(paths[0]).is_relative_to(PACKAGE.parent), (library, paths)


def test_metadata():
    metadata = importlib.metadata.metadata("spyre-inference")
    assert metadata["Requires-Python"] == ">=3.11"
    assert importlib.metadata.requires("spyre-inference") == ["numpy>=1.26"]  # vLLM is not among them
    assert spyre_inference.__version__ == metadata["Version"]
    points = importlib.metadata.distribution("spyre-inference").entry_points
    assert {(point.group, point.name) for point in points} == {
        ("console_scripts", "spyre"),
        ("vllm.platform_plugins", "spyre_inference"),
        ("vllm.general_plugins", "spyre_inference_ops"),
    }
    assert all(callable(point.load()) for point in points)


def test_importing_the_package_costs_next_to_nothing():
    code = (
        "import os, sys, spyre_inference\n"
        "assert not {'numpy', 'spyre_inference._native', 'vllm'} & set(sys.modules), sys.modules.keys()\n"
        "assert len(os.listdir('/proc/self/task')) == 1\n"
        "from spyre_inference import Engine\n"
        "assert len(os.listdir('/proc/self/task')) == 1\n"
        "assert 'numpy' not in sys.modules\n"
        "assert set(spyre_inference.__all__) <= set(dir(spyre_inference))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_names_of_the_package():
    for name in spyre_inference.__all__:
        assert getattr(spyre_inference, name).__name__ == name
    with pytest.raises(AttributeError, match="nothing"):
        spyre_inference.nothing


# --- the program


def run(*command, **options):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)


def test_the_command_is_the_program_with_its_arguments_and_exit_codes():
    version = run(SPYRE, "--version")
    assert version.returncode == 0
    assert version.stdout.split("-")[0] == spyre_inference.__version__
    assert run(sys.executable, "-m", "spyre_inference", "--version").stdout == version.stdout
    assert "serve" in run(SPYRE, "--help").stdout
    assert run(SPYRE).returncode == 2
    failed = run(SPYRE, "generate", "/no/such model", "--prompt-ids", "5")
    assert failed.returncode == 1 and "/no/such model" in failed.stderr
    arguments = ("generate", MODEL, "--prompt-ids", "5, 6", "--max-tokens", "4")
    answer = run(SPYRE, *arguments)
    assert answer.returncode == 0
    assert answer.stdout == run(PACKAGE / "bin/spyre", *arguments).stdout
    with spyre_inference.Engine(MODEL) as engine:
        ids = engine.generate([5, 6], spyre_inference.SamplingParams(temperature=0, max_tokens=4))[0].token_ids
    assert [int(i) for i in answer.stdout.split(",")] == ids
    odd = b"/no/such/\xff"  # not UTF-8: comes through as it is
    assert odd in subprocess.run([os.fsencode(SPYRE), b"inspect", odd], capture_output=True).stderr


def ignored_signals(pid):
    return next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigIgn"))


def test_signals_reach_the_program():
    ignored = []
    for program in (SPYRE, PACKAGE / "bin/spyre"):
        command = [str(program), "serve", str(MODEL), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            assert "ready" in server.stdout.readline()
            assert os.readlink(f"/proc/{server.pid}/exe") == str(PACKAGE / "bin/spyre")  # no process in between
            ignored.append(ignored_signals(server.pid))
            server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 0
    assert ignored[0] == ignored[1]  # Python ignores some, and an ignored signal stays so across exec
