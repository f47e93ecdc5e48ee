#!/usr/bin/env python3
"""Makes the fixtures of the format tests with the reference writers and dequantisers.

    python3 -m venv venv && venv/bin/pip install gguf==0.19.0 safetensors==0.8.0 numpy==2.4.6
    venv/bin/python tests/data/formats/make_fixtures.py

Deterministic: the random numbers are seeded. Everything lands beside this script:
  blocks.safetensors   raw blocks of each GGUF type (`Q4_1.blocks`, U8) and their fp32 values (`Q4_1.values`)
  tiny_llama.gguf      a random Llama (2 layers, hidden 32, 4/2 heads of 8) with every readable tensor type and key type
  tiny_llama_v2.gguf   the same keys and one tensor, as version 2
  tiny_llama/          the same model as a Hugging Face folder in fp32: the oracle of names, shapes and row order
  ../fuzz/             seeds of the fuzzers
  sharded/             two safetensors shards with an index: F16, BF16, F64, I64, BOOL and an empty tensor
"""
import json
import pathlib
import struct

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.quants import dequantize, quantize
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).resolve().parent
rng = np.random.default_rng(20260911)

HIDDEN, FFN, LAYERS, HEADS, KV_HEADS, HEAD, VOCAB = 32, 64, 2, 4, 2, 8, 40


def finite_halves(n):
    """f16 words of every exponent but the last: subnormals, both zeros and 65504 are among them."""
    words = rng.integers(0, 1 << 16, size=n, dtype=np.uint16)
    words[(words & 0x7C00) == 0x7C00] &= 0xFBFF
    words[:4] = [0x0001, 0x8000, 0x7BFF, 0x83FF]
    return words


def random_blocks(own, kind, n, front, rest, back):
    """Halves at the front or at the end; the other bytes are anything."""
    words = own.integers(0, 1 << 16, size=(n, front + back), dtype=np.uint16)
    words[(words & 0x7C00) == 0x7C00] &= 0xFBFF
    words[:4, 0] = [0x0001, 0x8000, 0x7BFF, 0x83FF]
    body = own.integers(0, 256, size=(n, rest), dtype=np.uint8)
    head, tail = words[:, :front].copy().view(np.uint8), words[:, front:].copy().view(np.uint8)
    blocks = np.ascontiguousarray(np.concatenate([head, body, tail], axis=1))
    return {f"{kind.name}.blocks": blocks.reshape(-1),
            f"{kind.name}.values": dequantize(blocks, kind).astype(np.float32).reshape(-1)}


def make_blocks():
    out, n = {}, 96
    for kind, halves, rest in ((T.Q8_0, 1, 32), (T.Q4_0, 1, 16), (T.Q4_1, 2, 16)):
        head = np.stack([finite_halves(n) for _ in range(halves)], axis=1).view(np.uint8)
        body = rng.integers(0, 256, size=(n, rest), dtype=np.uint8)
        blocks = np.ascontiguousarray(np.concatenate([head, body], axis=1))
        out[f"{kind.name}.blocks"] = blocks.reshape(-1)
        out[f"{kind.name}.values"] = dequantize(blocks, kind).astype(np.float32).reshape(-1)
    out.update(make_k_blocks(np.random.default_rng(20261130)))
    out.update(make_low_bit_blocks(np.random.default_rng(20261201)))
    halves = finite_halves(1024)
    out["F16.blocks"], out["F16.values"] = halves.view(np.uint8), halves.view(np.float16).astype(np.float32)
    brain = rng.integers(0, 1 << 16, size=1024, dtype=np.uint16)
    brain[(brain & 0x7F80) == 0x7F80] &= 0xBFFF
    out["BF16.blocks"] = brain.view(np.uint8)
    out["BF16.values"] = dequantize(brain.view(np.uint8), T.BF16).astype(np.float32).reshape(-1)
    save_file(out, HERE / "blocks.safetensors", metadata={"made_by": "make_fixtures.py"})


def make_k_blocks(own):
    """The types with five bits and with groups, from numbers of their own: the fixtures made before stay as they are."""
    out = {}
    for kind, front, rest, back in ((T.Q5_0, 1, 20, 0), (T.Q5_1, 2, 20, 0), (T.Q4_K, 2, 140, 0), (T.Q5_K, 2, 172, 0),
                                    (T.Q6_K, 0, 208, 1)):
        out.update(random_blocks(own, kind, 16, front, rest, back))
    return out


def make_low_bit_blocks(own):
    """The types with two and three bits, and those with a grid; from numbers of their own, too."""
    out = {}
    for kind, n, front, rest, back in ((T.Q2_K, 8, 0, 80, 2), (T.Q3_K, 8, 0, 108, 1), (T.IQ4_NL, 32, 1, 16, 0),
                                       (T.IQ4_XS, 8, 1, 134, 0)):
        out.update(random_blocks(own, kind, n, front, rest, back))
    return out


def weights():
    """(GGUF name, Hugging Face name, shape, type, heads whose rows are interleaved)"""
    yield "token_embd.weight", "model.embed_tokens.weight", (VOCAB, HIDDEN), T.Q8_0, 0
    for i in range(LAYERS):
        b, h = f"blk.{i}.", f"model.layers.{i}."
        yield b + "attn_norm.weight", h + "input_layernorm.weight", (HIDDEN,), T.F32, 0
        yield b + "attn_q.weight", h + "self_attn.q_proj.weight", (HEADS * HEAD, HIDDEN), T.Q4_1, HEADS
        yield b + "attn_q.bias", h + "self_attn.q_proj.bias", (HEADS * HEAD,), T.F32, HEADS
        yield b + "attn_k.weight", h + "self_attn.k_proj.weight", (KV_HEADS * HEAD, HIDDEN), T.Q4_0, KV_HEADS
        yield b + "attn_k.bias", h + "self_attn.k_proj.bias", (KV_HEADS * HEAD,), T.F16, KV_HEADS
        yield b + "attn_v.weight", h + "self_attn.v_proj.weight", (KV_HEADS * HEAD, HIDDEN), T.F16, 0
        yield b + "attn_output.weight", h + "self_attn.o_proj.weight", (HIDDEN, HEADS * HEAD), T.BF16, 0
        yield b + "ffn_norm.weight", h + "post_attention_layernorm.weight", (HIDDEN,), T.F32, 0
        yield b + "ffn_gate.weight", h + "mlp.gate_proj.weight", (FFN, HIDDEN), T.F32, 0
        yield b + "ffn_up.weight", h + "mlp.up_proj.weight", (FFN, HIDDEN), T.Q8_0, 0
        yield b + "ffn_down.weight", h + "mlp.down_proj.weight", (HIDDEN, FFN), T.Q4_1, 0
    yield "output_norm.weight", "model.norm.weight", (HIDDEN,), T.F32, 0


def halves_first(w, heads):
    """File row (head, i, c) becomes row (head, c, i): what Hugging Face's rotate_half expects."""
    order = np.arange(w.shape[0]).reshape(heads, -1, 2).transpose(0, 2, 1).reshape(-1)
    return w[order]


def add_keys(w):
    w.add_context_length(256)
    w.add_embedding_length(HIDDEN)
    w.add_block_count(LAYERS)
    w.add_feed_forward_length(FFN)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_key_length(HEAD)
    w.add_value_length(HEAD)
    w.add_rope_dimension_count(HEAD)
    w.add_rope_freq_base(50000.0)
    w.add_layer_norm_rms_eps(1e-5)
    tokens = [f"tok{i}" for i in range(VOCAB - 3)] + ["", "\u0120caf\u00e9", "<|end|>"]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("smollm")
    w.add_token_list(tokens)
    w.add_token_types([1] * (VOCAB - 1) + [3])
    w.add_token_scores([-0.5 * i for i in range(VOCAB)])
    w.add_token_merges(["t ok", "\u0120 c"])
    w.add_bos_token_id(1)
    w.add_eos_token_id(VOCAB - 1)
    w.add_eot_token_id(2)
    w.add_add_bos_token(False)
    w.add_add_space_prefix(False)
    w.add_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}")
    w.add_uint8("test.u8", 200)
    w.add_int8("test.i8", -100)
    w.add_uint16("test.u16", 60000)
    w.add_int16("test.i16", -30000)
    w.add_uint32("test.u32", 4000000000)
    w.add_int32("test.i32", -2000000000)
    w.add_uint64("test.u64", 2**63 + 5)
    w.add_int64("test.i64", -(2**62))
    w.add_float32("test.f32", 0.1)
    w.add_float64("test.f64", 0.1)
    w.add_bool("test.bool", True)
    w.add_string("test.string", "caf\u00e9\nline")
    w.add_array("test.ints", [1, -2, 3])
    w.add_array("test.floats", [0.5, -0.25])
    w.add_array("test.bools", [True, False, True])


def make_models():
    w = gguf.GGUFWriter(HERE / "tiny_llama.gguf", "llama")
    add_keys(w)
    oracle = {}
    for name, hf_name, shape, kind, heads in weights():
        dense = (rng.standard_normal(shape) * (0.1 if len(shape) == 2 else 1.0)).astype(np.float32)
        packed = quantize(dense, kind)
        exact = dense if kind == T.F32 else dequantize(packed, kind)
        exact = np.ascontiguousarray(exact, dtype=np.float32).reshape(shape)
        if kind in (T.F32, T.F16):
            w.add_tensor(name, dense.astype(np.float16) if kind == T.F16 else dense)
        else:
            w.add_tensor(name, packed, raw_dtype=kind)
        oracle[hf_name] = np.ascontiguousarray(halves_first(exact, heads) if heads else exact)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()

    folder = HERE / "tiny_llama"
    folder.mkdir(exist_ok=True)
    save_file(oracle, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB, "hidden_size": HIDDEN,
        "intermediate_size": FFN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "max_position_embeddings": 256, "rms_norm_eps": 1e-05,
        "rope_theta": 50000.0, "rope_scaling": None, "hidden_act": "silu", "attention_bias": True, "mlp_bias": False,
        "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": VOCAB - 1, "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, VOCAB - 1]}, indent=2) + "\n")


def make_v2():
    """The writer only makes version 3; versions 2 and 3 differ in nothing but the number."""
    w = gguf.GGUFWriter(HERE / "tiny_llama_v2.gguf", "llama")
    w.add_uint32("test.u32", 7)
    w.add_tensor("output_norm.weight", np.arange(HIDDEN, dtype=np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    path = HERE / "tiny_llama_v2.gguf"
    data = bytearray(path.read_bytes())
    data[4:8] = struct.pack("<I", 2)
    path.write_bytes(data)


def make_sharded():
    folder = HERE / "sharded"
    folder.mkdir(exist_ok=True)
    f16 = np.arange(-12, 12, dtype=np.float16).reshape(4, 6)
    f64 = np.array([0.1, 1.0 + 2.0**-11 + 2.0**-40, -3.0, 65504.0], dtype=np.float64)
    first = {"a.f16": f16, "a.ids": np.arange(5, dtype=np.int64)}
    second = {"b.f64": f64, "b.flags": np.array([True, False, True]), "b.none": np.zeros((0, 3), dtype=np.float32)}
    names = {}
    for i, shard in enumerate((first, second), 1):
        file = f"model-{i:05}-of-00002.safetensors"
        save_file(shard, folder / file)
        names.update({name: file for name in shard})
    index = {"metadata": {"total_size": 123, "more": {"x": [1, 2.5, None, True]}}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    config = json.loads((HERE / "tiny_llama" / "config.json").read_text())
    del config["torch_dtype"]
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def make_block_seed(path, own, tensors):
    """A model of 256 wide with tensors of the block types given: (name, rows, type, bytes of a row)."""
    w = gguf.GGUFWriter(path, "qwen2")
    for add, value in ((w.add_context_length, 16), (w.add_embedding_length, 256), (w.add_block_count, 1),
                       (w.add_feed_forward_length, 256), (w.add_head_count, 4), (w.add_head_count_kv, 2),
                       (w.add_layer_norm_rms_eps, 1e-5)):
        add(value)
    for name, rows, kind, size in tensors:
        w.add_tensor(name + ".weight", own.integers(0, 60, size=(rows, size), dtype=np.uint8), raw_dtype=kind)
    w.add_tensor("output_norm.weight", np.ones(256, dtype=np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def make_block_seeds(folder):
    """The types with groups, five bits, or a grid; and a model whose rows are no whole blocks."""
    path = folder / "good-k-blocks.gguf"
    make_block_seed(path, np.random.default_rng(7),
                    (("token_embd", 2, T.Q5_0, 176), ("blk.0.attn_v", 1, T.Q5_1, 192), ("blk.0.ffn_up", 1, T.Q4_K, 144),
                     ("blk.0.ffn_gate", 1, T.Q5_K, 176), ("blk.0.ffn_down", 1, T.Q6_K, 210)))
    make_block_seed(folder / "good-low-bit-blocks.gguf", np.random.default_rng(8),
                    (("token_embd", 2, T.IQ4_NL, 144), ("blk.0.ffn_up", 1, T.Q2_K, 84), ("blk.0.ffn_gate", 1, T.Q3_K, 110),
                     ("blk.0.ffn_down", 1, T.IQ4_XS, 136)))
    good = path.read_bytes()
    at = good.index(b"blk.0.ffn_up.weight") + 19 + 4  # the first dimension: 256 -> 255
    (folder / "bad-k-row.gguf").write_bytes(good[:at] + struct.pack("<Q", 255) + good[at + 8:])


def make_family_seeds(folder):
    """The keys and tensor names of the other families; row r of attn_q is filled with r."""
    for arch, tensors in (("qwen3", ("attn_q_norm.weight", "attn_k_norm.weight")), ("granite", ()),
                          ("qwen2", ("attn_q.bias", "attn_k.bias"))):
        w = gguf.GGUFWriter(folder / f"good-{arch}.gguf", arch)
        w.add_context_length(4096)
        w.add_embedding_length(16)
        w.add_block_count(1)
        w.add_feed_forward_length(32)
        w.add_head_count(2)
        w.add_head_count_kv(1)
        w.add_layer_norm_rms_eps(1e-6)
        w.add_rope_freq_base(1e6)
        w.add_vocab_size(2)
        if arch == "qwen3":
            w.add_key_length(8)
            w.add_value_length(8)
            w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
            w.add_rope_scaling_factor(4.0)
            w.add_rope_scaling_orig_ctx_len(1024)
        if arch == "granite":
            w.add_attention_scale(0.0078125)
            w.add_embedding_scale(12.0)
            w.add_residual_scale(0.22)
            w.add_logit_scale(16.0)
        w.add_tensor("token_embd.weight", np.ones((2, 16), dtype=np.float32))
        w.add_tensor("blk.0.attn_q.weight", np.repeat(np.arange(16, dtype=np.float32)[:, None], 16, axis=1))
        for name in tensors:
            w.add_tensor("blk.0." + name, np.arange(16 if name == "attn_q.bias" else 8, dtype=np.float32))
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()


def make_seeds():
    """Seeds for the fuzzers, small because a fuzzer reads them a million times: good-* must be read, bad-* refused."""
    fuzz = HERE.parent / "fuzz"
    for name in ("gguf", "safetensors", "config"):
        (fuzz / name).mkdir(parents=True, exist_ok=True)

    path = fuzz / "gguf" / "good-llama.gguf"
    w = gguf.GGUFWriter(path, "llama")
    w.add_context_length(16)
    w.add_embedding_length(32)
    w.add_block_count(1)
    w.add_feed_forward_length(32)
    w.add_head_count(2)
    w.add_head_count_kv(1)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(10000.0)
    w.add_tokenizer_model("gpt2")
    w.add_token_list(["a", "bc"])
    w.add_token_types([1, 3])
    w.add_token_scores([0.0, -1.0])
    w.add_token_merges(["b c"])
    w.add_eos_token_id(1)
    for name, rows, kind in (("token_embd", 2, T.Q8_0), ("blk.0.attn_q", 32, T.Q4_0), ("blk.0.attn_k", 16, T.Q4_1),
                             ("blk.0.attn_v", 1, T.BF16)):
        w.add_tensor(name + ".weight", quantize(rng.standard_normal((rows, 32)).astype(np.float32), kind), raw_dtype=kind)
    w.add_tensor("output_norm.weight", np.ones(32, dtype=np.float32))
    w.add_tensor("blk.0.ffn_down.weight", np.ones((2, 32), dtype=np.float16))
    w.add_tensor("rope_freqs.weight", np.ones(8, dtype=np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    make_block_seeds(fuzz / "gguf")
    make_family_seeds(fuzz / "gguf")
    good = path.read_bytes()
    (fuzz / "gguf" / "bad-cut.gguf").write_bytes(good[: len(good) // 2])
    (fuzz / "gguf" / "bad-version1.gguf").write_bytes(good[:4] + struct.pack("<I", 1) + good[8:])
    (fuzz / "gguf" / "bad-big-endian.gguf").write_bytes(good[:4] + struct.pack(">I", 3) + good[8:])
    (fuzz / "gguf" / "bad-tensor-count.gguf").write_bytes(good[:8] + b"\xff" * 8 + good[16:])
    at = good.index(b"tokenizer.ggml.tokens") + 21 + 8  # the array's count
    (fuzz / "gguf" / "bad-token-count.gguf").write_bytes(good[:at] + b"\xff" * 7 + b"\x1f" + good[at + 8:])
    at = good.index(b"blk.0.attn_k.weight") + 19 + 4  # the first dimension
    (fuzz / "gguf" / "bad-dimension.gguf").write_bytes(good[:at] + b"\x20" + b"\0" * 6 + b"\x40" + good[at + 8:])

    def safetensors(header, data):
        text = json.dumps(header, separators=(",", ":")).encode()
        return struct.pack("<Q", len(text)) + text + data

    def entry(dtype, shape, begin, end):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    folder = fuzz / "safetensors"
    two = {"__metadata__": {"format": "pt"}, "a": entry("F16", [2, 2], 0, 8), "b": entry("BF16", [2], 8, 12)}
    (folder / "good-two.safetensors").write_bytes(safetensors(two, bytes(range(12))))
    (folder / "good-scalar.safetensors").write_bytes(safetensors({"s": entry("F32", [], 0, 4)}, bytes(4)))
    (folder / "good-index.json").write_text('{"metadata":{"total_size":8},"weight_map":{"a":"x","b":"y","c":"x"}}')
    (folder / "bad-hole.safetensors").write_bytes(safetensors({"a": entry("U8", [2], 2, 4)}, bytes(4)))
    (folder / "bad-overlap.safetensors").write_bytes(
        safetensors({"a": entry("U8", [3], 0, 3), "b": entry("U8", [2], 2, 4)}, bytes(4)))
    (folder / "bad-shape.safetensors").write_bytes(safetensors({"a": entry("F64", [2**61 + 1], 0, 8)}, bytes(8)))
    (folder / "bad-past-end.safetensors").write_bytes(safetensors({"a": entry("I64", [2], 0, 16)}, bytes(8)))
    (folder / "bad-length.safetensors").write_bytes(struct.pack("<Q", 2**63) + b"{}")
    (folder / "bad-index.json").write_text('{"weight_map":{"a":["x"]}}')

    folder = fuzz / "config"
    config = json.loads((HERE / "tiny_llama" / "config.json").read_text())
    generation = (HERE / "tiny_llama" / "generation_config.json").read_text()
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 64}
    seeds = {
        "good-llama": json.dumps(config),
        "good-generation": json.dumps(config) + "\0" + generation,
        "good-llama3": json.dumps(config | {"rope_scaling": llama3, "eos_token_id": [1, 2]}),
        "good-parameters": json.dumps(config | {"rope_parameters": {"full_attention": llama3, "other": {}}}),
        "bad-heads": json.dumps(config | {"num_key_value_heads": 3}),
        "bad-number": json.dumps(config | {"vocab_size": 1e300}),
        "bad-quantised": json.dumps(config | {"quantization_config": {"quant_method": "awq"}}),
        "bad-depth": "[" * 2000,
    }
    for name, text in seeds.items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    make_blocks()
    make_models()
    make_v2()
    make_sharded()
    make_seeds()
