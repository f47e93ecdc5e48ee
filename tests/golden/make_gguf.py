#!/usr/bin/env python3
"""Writes some of the golden checkpoints as GGUF files, as llama.cpp's converter does, with the package `gguf`.

    make_gguf.py [--data data] [--out data_gguf]

The tensors keep their values (bf16 and f16 matrices as they are, vectors as f32), so a model loaded from the GGUF file must give the
same bits as from the folder. Q and K rows of Granite (and Llama) stand interleaved in such files; those of Qwen do not.
"""

import argparse
import json
import pathlib

import gguf
import numpy as np
import torch
from safetensors.torch import load_file

NAMES = ["granite_gqa64", "qwen2_gqa64", "qwen2_yarn", "qwen3_gqa48"]
ARCHITECTURES = {"granite": "granite", "llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
INTERLEAVED = {"llama", "granite"}
PARTS = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
F32, F16, BF16 = (gguf.GGMLQuantizationType[n] for n in ("F32", "F16", "BF16"))


def gguf_name(name):
    stem, kind = name.rsplit(".", 1)
    if stem in WHOLE:
        return f"{WHOLE[stem]}.{kind}"
    layer, part = stem.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{PARTS[part]}.{kind}"


def interleaved(w, heads):
    """Rows (i, i + d/2) of each head side by side: the order that ggml's plain rotary embedding wants."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def add_keys(out, config, heads, head_dim):
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_block_count(config["num_hidden_layers"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(heads)
    out.add_head_count_kv(config["num_key_value_heads"])
    out.add_key_length(head_dim)
    out.add_value_length(head_dim)
    out.add_rope_dimension_count(head_dim)
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_rope_freq_base(rope.get("rope_theta", config.get("rope_theta", 10000.0)))
    out.add_vocab_size(config["vocab_size"])
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind in ("linear", "yarn"):
        out.add_rope_scaling_type(gguf.RopeScalingType(kind))
        out.add_rope_scaling_factor(rope["factor"])
    if kind == "yarn":
        out.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if config["model_type"] == "granite":
        out.add_attention_scale(config["attention_multiplier"])
        out.add_embedding_scale(config["embedding_multiplier"])
        out.add_residual_scale(config["residual_multiplier"])
        out.add_logit_scale(config["logits_scaling"])


def convert(folder, path):
    config = json.loads((folder / "config.json").read_text())
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    arch = ARCHITECTURES[config["model_type"]]
    out = gguf.GGUFWriter(path, arch)
    add_keys(out, config, heads, head_dim)
    for name, w in sorted(load_file(folder / "model.safetensors").items()):
        kind = {torch.float32: F32, torch.float16: F16, torch.bfloat16: BF16}[w.dtype]
        if w.dim() == 1:
            array, kind = w.float().numpy(), F32
        else:
            array = (w.view(torch.uint16) if kind == BF16 else w).numpy()
        part = name.rsplit(".", 2)[-2]
        if arch in INTERLEAVED and part in ("q_proj", "k_proj"):
            array = interleaved(array, heads if part == "q_proj" else config["num_key_value_heads"])
        array = np.ascontiguousarray(array)
        out.add_tensor(gguf_name(name), array.view(np.uint8) if kind == BF16 else array, raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def main():
    here = pathlib.Path(__file__).parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, default=here / "data")
    parser.add_argument("--out", type=pathlib.Path, default=here / "data_gguf")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        path = args.out / f"{name}.gguf"
        convert(args.data / name, path)
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
