"""llama.cpp's own library out of npm's @node-llama-cpp/linux-x64 (no JavaScript runs): the C API by ctypes, kernels for this CPU.

A run is llama_decode() calls and the largest logit of each row: what llama.cpp's own benchmarks time, and no server.
"""

import ctypes as c
import json
import pathlib
import time

import channel
import numpy as np

BATCH, MICRO_BATCH = 2048, 512
# Structures that the library returns and takes by value; what lies behind the fields that are set here stays as it came.
ROOM = 1024


class ContextParams(c.Structure):
    _fields_ = [("n_ctx", c.c_uint32), ("n_batch", c.c_uint32), ("n_ubatch", c.c_uint32), ("n_seq_max", c.c_uint32),
                ("rest", c.c_byte * (ROOM - 16))]  # fmt: skip


class ModelParams(c.Structure):
    _fields_ = [("rest", c.c_byte * ROOM)]


class Batch(c.Structure):
    _fields_ = [("n_tokens", c.c_int32), ("token", c.POINTER(c.c_int32)), ("embd", c.c_void_p), ("pos", c.POINTER(c.c_int32)),
                ("n_seq_id", c.POINTER(c.c_int32)), ("seq_id", c.POINTER(c.POINTER(c.c_int32))),
                ("logits", c.POINTER(c.c_int8))]  # fmt: skip


def load_libraries(folder):
    """(llama, ggml) with the signatures of what is used."""
    mode = c.RTLD_GLOBAL
    c.CDLL(str(folder / "libggml-base.so"), mode)
    ggml = c.CDLL(str(next(folder.glob("libggml.*.so"))), mode)
    llama = c.CDLL(str(next(folder.glob("libllama.*.so"))), mode)
    pointer = c.c_void_p
    for name, result, arguments in (
        ("llama_backend_init", None, []), ("llama_model_default_params", ModelParams, []),
        ("llama_context_default_params", ContextParams, []), ("llama_print_system_info", c.c_char_p, []),
        ("llama_model_load_from_file", pointer, [c.c_char_p, ModelParams]),
        ("llama_init_from_model", pointer, [pointer, ContextParams]), ("llama_free", None, [pointer]),
        ("llama_set_n_threads", None, [pointer, c.c_int32, c.c_int32]), ("llama_model_get_vocab", pointer, [pointer]),
        ("llama_vocab_n_tokens", c.c_int32, [pointer]), ("llama_get_memory", pointer, [pointer]),
        ("llama_memory_clear", None, [pointer, c.c_bool]), ("llama_batch_init", Batch, [c.c_int32, c.c_int32, c.c_int32]),
        ("llama_decode", c.c_int32, [pointer, Batch]), ("llama_get_logits_ith", c.POINTER(c.c_float), [pointer, c.c_int32]),
    ):  # fmt: skip
        function = getattr(llama, name)
        function.restype, function.argtypes = result, arguments
    ggml.ggml_backend_load_all_from_path.argtypes = [c.c_char_p]
    return llama, ggml


class Llama:
    def __init__(self, options):
        folder = pathlib.Path(options["library"])
        self.threads = options["threads"]
        self.lib, ggml = load_libraries(folder)
        ggml.ggml_backend_load_all_from_path(str(folder).encode())
        self.lib.llama_backend_init()
        self.model = self.lib.llama_model_load_from_file(options["gguf"].encode(), self.lib.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {options['gguf']}")
        self.vocabulary = self.lib.llama_vocab_n_tokens(self.lib.llama_model_get_vocab(self.model))
        self.batch = self.lib.llama_batch_init(BATCH, 0, 1)
        self.context, self.shape = None, None

    def fit(self, sequences, length):
        """A context whose cache fits the run: with that llama.cpp is fastest. Each sequence has keys of its own."""
        if self.shape == (sequences, length):
            return False
        if self.context:
            self.lib.llama_free(self.context)
        params = self.lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = sequences * length, BATCH, MICRO_BATCH, sequences
        self.context = self.lib.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError(f"llama.cpp makes no context of {sequences} x {length} tokens")
        self.lib.llama_set_n_threads(self.context, self.threads, self.threads)
        self.shape = (sequences, length)
        return True

    def decode(self, entries):
        """entries: (token, position, sequence, whether its logits are wanted). Returns the ids drawn, in order."""
        b = self.batch
        b.n_tokens = len(entries)
        for i, (token, position, sequence, wanted) in enumerate(entries):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = token, position, 1, wanted
            b.seq_id[i][0] = sequence
        status = self.lib.llama_decode(self.context, b)
        if status:
            raise RuntimeError(f"llama_decode answers {status}")
        rows = [i for i, e in enumerate(entries) if e[3]]
        logits = (self.lib.llama_get_logits_ith(self.context, i) for i in rows)
        return [int(np.argmax(np.ctypeslib.as_array(row, (self.vocabulary,)))) for row in logits]

    def steps(self, prompts, output_tokens):
        """Yields the sequences that have one token more."""
        last = {}
        entries = [(t, i, s, i + 1 == len(p)) for s, p in enumerate(prompts) for i, t in enumerate(p)]
        for begin in range(0, len(entries), BATCH):
            part = entries[begin : begin + BATCH]
            ended = [s for _, _, s, wanted in part if wanted]
            last.update(zip(ended, self.decode(part)))
            yield dict.fromkeys(ended, 1)
        for n in range(output_tokens - 1):
            drawn = self.decode([(last[s], len(p) + n, s, True) for s, p in enumerate(prompts)])
            last = dict(enumerate(drawn))
            yield dict.fromkeys(range(len(prompts)), 1)

    def run(self, prompts, output_tokens):
        if self.fit(len(prompts), -(-(len(prompts[0]) + output_tokens) // 256) * 256):
            list(self.steps([p[:16] for p in prompts], 2))  # first touch
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
        begin = time.perf_counter()
        return channel.stepped(begin, self.steps(prompts, output_tokens))


def open_engine(options):
    engine = Llama(options)
    build = json.loads((pathlib.Path(options["library"]) / "_nlcBuildMetadata.json").read_text())
    return engine, {
        "version": f"llama.cpp {build['buildOptions']['llamaCpp']['release']}",
        "note": "f16 KV, flash attention where it chooses it; prebuilt kernels for this CPU",
        "system": engine.lib.llama_print_system_info().decode(),
    }


if __name__ == "__main__":
    channel.serve(open_engine, Llama.run)
