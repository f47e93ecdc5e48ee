#!/usr/bin/env python3
"""Writes a random Llama-family checkpoint of any size, for benchmarks: real shapes, no sense in the text.

    make_random_model.py OUT --like llama-3.2-1b [--layers 4] [--dtype bfloat16] [--shard-mb 1000]

Tensors are drawn and written in pieces of a few megabytes, straight to their place in a shard, so a model of any size
takes little memory. Needs numpy alone.
"""

import argparse
import json
import math
import pathlib
import struct
import sys
import zlib

import numpy as np

# hidden, layers, heads, KV heads, head size, intermediate, vocabulary, tied, rope theta
SHAPES = {
    "smollm2-135m": (576, 30, 9, 3, 64, 1536, 49152, True, 1e5),
    "llama-3.2-1b": (2048, 16, 32, 8, 64, 8192, 128256, True, 5e5),
    "llama-3.1-8b": (4096, 32, 32, 8, 128, 14336, 128256, False, 5e5),
    "llama-3.1-70b": (8192, 80, 64, 8, 128, 28672, 128256, False, 5e5),
}
FIELDS = ("hidden", "layers", "heads", "kv_heads", "head_dim", "intermediate", "vocab", "tied", "theta")
PIECE = 1 << 21  # elements drawn at a time


def to_bf16(x):
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


DTYPES = {"bfloat16": ("BF16", to_bf16), "float16": ("F16", lambda x: x.astype(np.float16))}


def tensor_table(a):
    """(name, shape, deviation) of every tensor; deviation None is a norm: ones with a little noise."""
    q, kv = a.heads * a.head_dim, a.kv_heads * a.head_dim
    linear = lambda name, rows, columns: (name + ".weight", (rows, columns), 1 / math.sqrt(columns))
    yield "model.embed_tokens.weight", (a.vocab, a.hidden), 2 / math.sqrt(a.hidden) if a.tied else 1.0
    for i in range(a.layers):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", (a.hidden,), None
        yield linear(p + "self_attn.q_proj", q, a.hidden)
        yield linear(p + "self_attn.k_proj", kv, a.hidden)
        yield linear(p + "self_attn.v_proj", kv, a.hidden)
        yield linear(p + "self_attn.o_proj", a.hidden, q)
        yield p + "post_attention_layernorm.weight", (a.hidden,), None
        yield linear(p + "mlp.gate_proj", a.intermediate, a.hidden)
        yield linear(p + "mlp.up_proj", a.intermediate, a.hidden)
        yield linear(p + "mlp.down_proj", a.hidden, a.intermediate)
    yield "model.norm.weight", (a.hidden,), None
    if not a.tied:
        yield linear("lm_head", a.vocab, a.hidden)


def pieces(name, shape, deviation, seed):
    rng = np.random.Generator(np.random.SFC64([seed, zlib.crc32(name.encode())]))
    left = math.prod(shape)
    while left:
        count = min(left, PIECE)
        x = rng.standard_normal(count, dtype=np.float32)
        yield 1 + np.float32(0.1) * x if deviation is None else x * np.float32(deviation)
        left -= count


def split_shards(table, limit):
    """Consecutive tensors up to `limit` bytes per shard; a larger tensor has a shard to itself."""
    shards, size = [[]], 0
    for entry in table:
        need = 2 * math.prod(entry[1])
        if shards[-1] and size + need > limit:
            shards.append([])
            size = 0
        shards[-1].append(entry)
        size += need
    return shards


def write_shard(path, table, dtype, seed):
    code, convert = DTYPES[dtype]
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, shape, _ in table:
        end = offset + 2 * math.prod(shape)
        header[name] = {"dtype": code, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, shape, deviation in table:
            for piece in pieces(name, shape, deviation, seed):
                out.write(convert(piece).tobytes())
    return offset


def write_config(a, path):
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": a.dtype, "vocab_size": a.vocab,
        "hidden_size": a.hidden, "intermediate_size": a.intermediate, "num_hidden_layers": a.layers,
        "num_attention_heads": a.heads, "num_key_value_heads": a.kv_heads, "head_dim": a.head_dim, "hidden_act": "silu",
        "max_position_embeddings": a.max_position, "rms_norm_eps": 1e-5, "rope_theta": a.theta, "rope_scaling": None,
        "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": bool(a.tied), "bos_token_id": 1,
        "eos_token_id": 2, "use_cache": True}
    path.write_text(json.dumps(config, indent=2) + "\n")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--like", choices=SHAPES, default="llama-3.2-1b", help="start from this shape; the flags below change it")
    for field in FIELDS[:7]:
        parser.add_argument("--" + field.replace("_", "-"), type=int)
    parser.add_argument("--theta", type=float, help="rope theta")
    parser.add_argument("--tied", action=argparse.BooleanOptionalAction, help="the head is the embedding")
    parser.add_argument("--max-position", type=int, default=8192)
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16")
    parser.add_argument("--shard-mb", type=int, default=4000, help="largest size of a file")
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    for field, value in zip(FIELDS, SHAPES[a.like]):
        if getattr(a, field) is None:
            setattr(a, field, value)
    if min(getattr(a, f) for f in FIELDS[:7]) < 1 or a.shard_mb < 1:
        parser.error("sizes must be at least 1")
    if a.heads % a.kv_heads or a.head_dim % 2:
        parser.error(f"{a.heads} heads do not divide among {a.kv_heads} KV heads, or head size {a.head_dim} is odd")
    return a


def main():
    a = parse()
    a.out.mkdir(parents=True, exist_ok=True)
    if any(a.out.glob("*.safetensors")):
        sys.exit(f"{a.out} already holds a checkpoint")
    write_config(a, a.out / "config.json")
    shards = split_shards(tensor_table(a), a.shard_mb * 1_000_000)
    total, where = 0, {}
    for i, shard in enumerate(shards):
        file = "model.safetensors" if len(shards) == 1 else f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        total += write_shard(a.out / file, shard, a.dtype, a.seed)
        where.update({name: file for name, _, _ in shard})
        print(f"{file}: {len(shard)} tensors, {total / 1e6:.1f} MB so far", flush=True)
    if len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": where}
        (a.out / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


if __name__ == "__main__":
    main()
