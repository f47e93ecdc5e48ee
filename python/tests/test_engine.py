"""spyre_inference.Engine, installed, on tiny models: golden logits, texts, errors, threads, Ctrl-C, memory."""

import contextlib
import json
import os
import pickle
import runpy
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

from spyre_inference import Engine, SamplingParams, errors

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/data"
GREEDY = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)


def open_engine(model, **settings):
    return Engine(model, **{"max_num_seqs": 16, "threads": 2, **settings})


def read_golden(name):
    """golden.json, and the logits [24, vocab] of its logit_rows, by what tests/golden/README.md says."""
    golden = json.loads((GOLDEN / name / "golden.json").read_text())
    data = (GOLDEN / name / "golden.safetensors").read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    tensor = json.loads(data[8 : 8 + length])["logits"]
    begin, end = tensor["data_offsets"]
    golden["logits"] = np.frombuffer(data[8 + length + begin : 8 + length + end], "<f4").reshape(tensor["shape"])
    return golden


@pytest.fixture(scope="module")
def text_model(tmp_path_factory):
    """A folder with a tokenizer."""
    folder = tmp_path_factory.mktemp("model")
    argv, sys.argv = sys.argv, ["make_model.py", str(folder)]
    try:
        runpy.run_path(str(ROOT / "tests/clients/make_model.py"), run_name="__main__")
    finally:
        sys.argv = argv
    return folder


@pytest.fixture(scope="module")
def poisoned_model(text_model, tmp_path_factory):
    """The same with an infinite embedding of token 400: a prompt that holds it fails."""
    folder = shutil.copytree(text_model, tmp_path_factory.mktemp("poisoned") / "model")
    weights = bytearray((folder / "model.safetensors").read_bytes())
    (length,) = struct.unpack_from("<Q", weights)
    embedding = json.loads(weights[8 : 8 + length])["model.embed_tokens.weight"]
    width = embedding["shape"][1]
    row = 8 + length + embedding["data_offsets"][0] + 400 * width * 2
    weights[row : row + 2 * width] = np.full(width, np.inf, "<f2").tobytes()
    (folder / "model.safetensors").write_bytes(weights)
    return folder


@pytest.fixture(scope="module")
def engine(text_model):
    with open_engine(text_model) as engine:
        yield engine


def relative_error(logits, golden):
    return np.abs(logits[golden["logit_rows"]] - golden["logits"]).max() / golden["max_abs_logit"]


# --- logits


@pytest.mark.parametrize("name", ["llama_gqa64", "qwen3_gqa48", "granite_gqa64"])
def test_logits_of_the_reference_are_those_of_transformers(name):
    golden = read_golden(name)
    with open_engine(GOLDEN / name, platform="cpu") as engine:
        logits = engine.logits(golden["prompt_token_ids"])
        assert logits.dtype == np.float32
        assert logits.shape == (len(golden["prompt_token_ids"]), engine.vocab_size)
        assert relative_error(logits, golden) < 1e-4
        changed = list(golden["prompt_token_ids"])
        changed[3] = (changed[3] + 1) % engine.vocab_size
        assert relative_error(engine.logits(changed), golden) > 0.01  # the comparison sees one wrong token


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["llama_gqa64", "qwen3_gqa48", "granite_gqa64"])
def test_logits_of_the_device_err_as_16_bits_do(name, dtype):
    golden = read_golden(name)
    with open_engine(GOLDEN / name, dtype=dtype) as engine:
        error = relative_error(engine.logits(golden["prompt_token_ids"]), golden)
        assert 0 < error <= 1.5 * golden["hf_error"][dtype]["sdpa"]["all_positions"]


@pytest.mark.parametrize("platform", ["cpu", "spyre"])
def test_logits_are_the_same_bits_in_any_chunks(platform):
    ids = read_golden("llama_gqa64")["prompt_token_ids"]
    seen = []
    for chunk in (512, 50, 17):
        with open_engine(GOLDEN / "llama_gqa64", platform=platform, max_num_batched_tokens=chunk) as engine:
            seen.append(engine.logits(np.array(ids, dtype=np.int64)))
            part = engine.logits(ids[:40])  # neither a cache nor what comes later matters
            assert part.tobytes() == seen[-1][:40].tobytes()
            assert engine.logits(ids).tobytes() == seen[-1].tobytes()
    assert seen[0].tobytes() == seen[1].tobytes() == seen[2].tobytes()


@pytest.mark.parametrize("platform", ["cpu", "spyre"])
def test_a_chain_of_largest_logits_is_the_greedy_answer(platform):
    golden = read_golden("llama_gqa64")
    with open_engine(GOLDEN / "llama_gqa64", platform=platform) as engine:
        ids = list(golden["prompt_token_ids"])
        answer = engine.generate(ids, GREEDY)[0]
        assert answer.token_ids == golden["greedy_token_ids"]
        rows = engine.logits(ids + answer.token_ids)
        assert rows[len(ids) - 1 : -1].argmax(axis=1).tolist() == answer.token_ids


def test_logits_outlive_the_engine_and_refuse_bad_ids():
    with open_engine(GOLDEN / "llama_gqa64") as engine:
        logits = engine.logits([1])
        assert logits.shape == (1, 307)
        refused = [(None, "NoneType"), ([], "empty"), ([5, 307], "307"), ([5, -1], "-1"), ([1] * 513, "513")]
        for bad, words in refused:
            with pytest.raises(errors.InvalidArgumentError, match=words):
                engine.logits(bad)
        again = engine.logits([1])
    assert np.isfinite(logits).all() and logits.tobytes() == again.tobytes()


# --- generate


def test_prompts_in_one_batch_give_what_each_gives_alone(engine):
    prompts = ["The capital", [5, 6, 7], np.array([9, 8], dtype=np.int32), "!" * 300, [11]]
    params = [
        SamplingParams(seed=i, max_tokens=20 + i, ignore_eos=True, logprobs=2, prompt_logprobs=1) for i in range(5)
    ]
    together = engine.generate(prompts, params)
    for prompt, param, output in zip(prompts, params, together, strict=True):
        (alone,) = engine.generate(prompt, param)
        assert output.choices == alone.choices
        assert output.prompt_logprobs == alone.prompt_logprobs
        assert output.prompt_token_ids == (engine.encode(prompt) if isinstance(prompt, str) else list(prompt))
        assert len(output.token_ids) == param.max_tokens
        assert output.finish_reason == "length" and output.error is None and output.stop_reason is None
        assert output.text == engine.decode(output.token_ids)
        assert len(output.prompt_logprobs) == len(output.prompt_token_ids) - 1


def test_the_shapes_that_prompts_may_have(engine):
    one = engine.generate([5, 6], GREEDY)
    assert [o.token_ids for o in engine.generate([[5, 6]], GREEDY)] == [o.token_ids for o in one]
    assert [o.token_ids for o in engine.generate(np.array([[5, 6], [5, 6]]), GREEDY)] == [one[0].token_ids] * 2
    assert [o.token_ids for o in engine.generate((np.int64(5), 6), GREEDY)] == [o.token_ids for o in one]
    assert engine.generate([]) == []
    assert len(engine.generate("Hi")[0].token_ids) <= 16  # vLLM's default


def test_log_probs_are_those_of_the_logits(engine):
    (output,) = engine.generate([5, 6, 7], SamplingParams(temperature=0, max_tokens=3, logprobs=4, prompt_logprobs=0))
    logits = engine.logits(output.prompt_token_ids + output.token_ids).astype(np.float64)
    expected = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    entries = output.prompt_logprobs + output.logprobs
    assert [e.token_id for e in entries] == output.prompt_token_ids[1:] + output.token_ids
    for row, entry in zip(expected, entries):
        assert entry.logprob == pytest.approx(row[entry.token_id], abs=1e-4)
        assert entry.rank == 1 + (row > row[entry.token_id] + 1e-9).sum()
        for (token, logprob), best in zip(entry.top, np.argsort(-row)):
            assert token == best and logprob == pytest.approx(row[best], abs=1e-4)
    assert [len(e.top) for e in entries] == [0, 0, 4, 4, 4]
    assert output.choices[0].logprobs is output.logprobs


def test_choices_differ_share_their_prompt_and_repeat(engine):
    params = SamplingParams(n=3, seed=7, max_tokens=12, ignore_eos=True)
    (output,) = engine.generate("Hello", params)
    answers = [tuple(choice.token_ids) for choice in output.choices]
    assert len(set(answers)) == 3
    assert [tuple(c.token_ids) for c in engine.generate(["x", "Hello"], [GREEDY, params])[1].choices] == answers


def test_an_answer_ends_where_it_is_told(engine):
    free = engine.generate([5, 6, 7], GREEDY)[0]
    token = free.token_ids[4]
    first = free.token_ids.index(token)

    def ends(**fields):
        return engine.generate([5, 6, 7], SamplingParams(temperature=0, ignore_eos=True, **fields))[0]

    stopped = ends(stop_token_ids=[token])
    assert (stopped.finish_reason, stopped.stop_reason) == ("stop", token)
    assert stopped.token_ids == free.token_ids[: first + 1]
    text = free.text[3:6]
    at = free.text.index(text)
    for stop in (text, [text, "never there"]):
        stopped = ends(stop=stop)
        assert (stopped.finish_reason, stopped.stop_reason, stopped.text) == ("stop", text, free.text[:at])
    assert ends(stop=text, include_stop_str_in_output=True).text == free.text[: at + len(text)]
    assert ends(max_tokens=0).token_ids == []
    most = ends(max_tokens=None)
    assert len(most.token_ids) == engine.config["max_model_len"] - 3 and most.finish_reason == "length"
    assert ends(allowed_token_ids=[9]).token_ids == [9] * 16
    assert ends(logit_bias={17: 1000.0}).token_ids == [17] * 16
    word = engine.decode(free.token_ids[:1])
    assert word not in ends(bad_words=[word]).text


@pytest.mark.parametrize(
    "prompt, fields, kind, words",
    [
        ([], {}, errors.InvalidArgumentError, "empty"),
        ([5, 502], {}, errors.InvalidArgumentError, "502"),
        ([5, 1 << 40], {}, errors.InvalidArgumentError, "1099511627776"),
        ([5, "x"], {}, errors.InvalidArgumentError, r"\[1\]"),
        ([5] * 1024, {}, errors.InvalidArgumentError, "1024 tokens"),
        (b"bytes", {}, errors.InvalidArgumentError, "bytes"),
        ("\ud800", {}, errors.InvalidArgumentError, "Unicode"),
        ([5], {"temperature": -1.0}, errors.InvalidArgumentError, "temperature"),
        ([5], {"temperature": "hot"}, errors.InvalidArgumentError, "temperature"),
        ([5], {"top_p": 0.0}, errors.InvalidArgumentError, "top_p"),
        ([5], {"n": 0}, errors.InvalidArgumentError, "n is 0"),
        ([5], {"n": 1.5}, errors.InvalidArgumentError, "n is of type float"),
        ([5], {"max_tokens": -1}, errors.InvalidArgumentError, "max_tokens"),
        ([5], {"logprobs": 503}, errors.InvalidArgumentError, "logprobs"),
        ([5], {"stop": ""}, errors.InvalidArgumentError, "stop"),
        ([5], {"stop": [1]}, errors.InvalidArgumentError, "stop"),
        ([5], {"bad_words": ["  "]}, errors.InvalidArgumentError, "bad_words"),
        ([5], {"bad_words": "word"}, errors.InvalidArgumentError, "bad_words"),
        ([5], {"allowed_token_ids": []}, errors.InvalidArgumentError, "allowed_token_ids"),
        ([5], {"logit_bias": {502: 1.0}}, errors.InvalidArgumentError, "502"),
    ],
)
def test_what_cannot_be_served_raises_before_anything_runs(engine, prompt, fields, kind, words):
    steps = engine.inspect("work")
    with pytest.raises(kind, match=words) as raised:
        engine.generate([[5, 6], prompt], [GREEDY, SamplingParams(**fields)])
    assert "prompts[1]" in str(raised.value) and "\n" not in str(raised.value)
    assert raised.value.code == "invalid_argument" and isinstance(raised.value, ValueError)
    assert engine.inspect("work") == steps


def test_prompts_and_params_must_pair(engine):
    with pytest.raises(errors.InvalidArgumentError, match="2 prompts and 1 sampling"):
        engine.generate([[5], [6]], [GREEDY])
    for bad in (5, None, {"a": 1}):
        with pytest.raises(errors.InvalidArgumentError, match="prompts"):
            engine.generate(bad)


def test_a_request_that_fails_ends_alone(engine, poisoned_model):
    expected = [output.token_ids for output in engine.generate([[5, 6], [7, 8]], GREEDY)]
    with open_engine(poisoned_model) as poisoned:
        good, bad, after = poisoned.generate([[5, 6], [5, 400, 6], [7, 8]], GREEDY)
        assert bad.finish_reason == "error" and "finite" in bad.error
        assert [good.token_ids, after.token_ids] == expected
        assert good.error is None and good.finish_reason == "length"
        with pytest.raises(errors.UnsupportedError, match="finite"):
            poisoned.logits([5, 400])
        assert np.isfinite(poisoned.logits([5, 6])).all()


# --- texts and reports


def test_texts(engine):
    assert engine.has_tokenizer
    assert engine.encode("x")[0] == 1  # BOS
    assert engine.encode("x", add_special_tokens=False) == engine.encode("x")[1:]
    assert engine.encode("<|im_end|>", add_special_tokens=False) == [3]
    assert len(engine.encode("<|im_end|>", add_special_tokens=False, parse_special_tokens=False)) > 1
    assert engine.decode(engine.encode("Où est ☕?")) == "Où est ☕?"
    assert engine.decode([3, 4]) == "!" and engine.decode([3, 4], skip_special_tokens=False) == "<|im_end|>!"
    with pytest.raises(errors.InvalidArgumentError):
        engine.encode(5)


def test_a_model_without_tokenizer_takes_ids_alone():
    with open_engine(GOLDEN / "llama_gqa64") as engine:
        assert not engine.has_tokenizer
        assert engine.generate([5], GREEDY)[0].text == ""
        for call in (lambda: engine.encode("x"), lambda: engine.decode([5]), lambda: engine.generate("x")):
            with pytest.raises(errors.NotFoundError, match="token ids") as raised:
                call()
            assert isinstance(raised.value, FileNotFoundError)
        with pytest.raises(errors.InvalidArgumentError, match="stop"):
            engine.generate([5], SamplingParams(stop="x"))


def test_inspect_and_config(engine, text_model):
    report = engine.inspect()
    assert report["artifacts"]["total"] > 0
    assert engine.inspect("artifacts") == report["artifacts"]
    with pytest.raises(errors.InvalidArgumentError, match="no topic 'nothing'"):
        engine.inspect("nothing")
    config = engine.config
    assert (config["platform"], config["max_num_seqs"], config["threads"]) == ("spyre", 16, 2)
    assert Path(config["model"]) == text_model


# --- opening and closing


@pytest.mark.parametrize(
    "settings, kind, words",
    [
        ({"model": "/no/such/model"}, errors.NotFoundError, "/no/such/model"),
        ({"platform": "abacus"}, errors.NotFoundError, "abacus"),
        ({"dtype": "float8"}, errors.InvalidArgumentError, "float8"),
        ({"max_model_len": 513}, errors.InvalidArgumentError, "513"),
        ({"max_model_len": "long"}, errors.InvalidArgumentError, "max_model_len"),
        ({"colour": "blue"}, errors.InvalidArgumentError, "colour"),
        ({"tensor_parallel_size": 2}, errors.UnsupportedError, "tensor_parallel_size"),
        ({"kv_cache_memory_bytes": 1}, errors.ResourceExhaustedError, "KV cache"),
    ],
)
def test_what_cannot_be_opened_says_why(settings, kind, words):
    with pytest.raises(kind, match=words) as raised:
        Engine(**{"model": GOLDEN / "llama_gqa64", **settings})
    assert "\n" not in str(raised.value)


def threads():
    return len(os.listdir("/proc/self/task"))


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_closing_gives_threads_and_memory_back():
    before = threads()
    engine = open_engine(GOLDEN / "llama_gqa64", threads=2)
    engine.generate([5, 6, 7], GREEDY)
    assert threads() > before
    native = weakref.ref(engine._native)
    engine.close()
    engine.close()
    assert native() is None
    assert threads() == before
    for call in (lambda: engine.generate([5]), lambda: engine.logits([5]), lambda: engine.config):
        with pytest.raises(errors.Error, match="closed") as raised:
            call()
        assert raised.value.code == "failed_precondition"
    sizes = []
    for _ in range(12):
        with open_engine(GOLDEN / "llama_gqa64") as engine:
            engine.generate([5, 6, 7], GREEDY)
        del engine
        sizes.append(resident_bytes())
    assert sizes[-1] - sizes[3] < 16 << 20, sizes


def test_an_engine_that_is_open_at_the_end_leaves_in_silence():
    code = (
        "import sys, spyre_inference as s\n"
        "engine = s.Engine(sys.argv[1], threads=2)\n"
        "outputs, logits = engine.generate([5, 6]), engine.logits([5])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, GOLDEN / "llama_gqa64"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --- threads and signals


def test_other_threads_run_and_calls_take_turns(engine):
    params = SamplingParams(temperature=0, max_tokens=300, ignore_eos=True)
    alone = [engine.generate([i, i + 1], params)[0].token_ids for i in (5, 50)]
    results = {}

    def work(i):
        results[i] = engine.generate([i, i + 1], params)[0].token_ids

    workers = [threading.Thread(target=work, args=(i,)) for i in (5, 50)]
    for worker in workers:
        worker.start()
    ticks = 0
    while any(worker.is_alive() for worker in workers):
        ticks += 1
        time.sleep(0.0005)
    assert [results[5], results[50]] == alone
    assert ticks > 10


LONG = SamplingParams(temperature=0, max_tokens=300, ignore_eos=True)
MANY = [[i] for i in range(5, 69)]  # 64 answers of 300 tokens: a second of work, at least


@contextlib.contextmanager
def interrupt_after(seconds):
    """Python raises only where Ctrl-C was not ignored at its start, and a job in the background ignores it."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGINT, handler)


def test_ctrl_c_ends_a_call_and_the_engine_goes_on(engine):
    expected = engine.generate([5, 6], GREEDY)[0].token_ids
    with interrupt_after(0.2):
        while True:  # however fast the machine is
            engine.generate(MANY, LONG)
    assert engine.generate([5, 6], GREEDY)[0].token_ids == expected


def test_ctrl_c_ends_the_wait_for_another_threads_call(engine):
    lengths, enough = [], threading.Event()

    def work():
        while not enough.is_set():
            lengths.extend(len(o.token_ids) for o in engine.generate(MANY, LONG))

    other = threading.Thread(target=work)
    other.start()
    with interrupt_after(0.3):
        while True:  # nearly all of it is waiting
            engine.generate([5, 6], GREEDY)
    enough.set()
    other.join()
    assert lengths and set(lengths) == {300}


# --- errors


def test_errors_are_builtin_ones_too_and_can_be_pickled():
    for kind, builtin in (
        (errors.InvalidArgumentError, ValueError),
        (errors.NotFoundError, FileNotFoundError),
        (errors.UnsupportedError, NotImplementedError),
        (errors.ResourceExhaustedError, MemoryError),
    ):
        error = pickle.loads(pickle.dumps(errors.from_code(kind.code, "5 is too many")))
        assert type(error) is kind and isinstance(error, (builtin, errors.Error))
        assert (str(error), error.code) == ("5 is too many", kind.code)
    other = pickle.loads(pickle.dumps(errors.from_code("corrupt_data", "short file")))
    assert type(other) is errors.Error and other.code == "corrupt_data"
