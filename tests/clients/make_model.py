#!/usr/bin/env python3
"""Makes a model folder to serve: a tiny Llama with random weights, the tokenizer of tests/data and a ChatML template.

    make_model.py OUT

It talks nonsense, quickly, and the same nonsense every time. Needs the standard library alone.
"""
import json
import pathlib
import random
import shutil
import struct
import sys

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD, MLP, CONTEXT = 502, 64, 2, 4, 2, 16, 96, 1024
TEMPLATE = """{%- for message in messages -%}
{%- if message.role not in ['system', 'user', 'assistant', 'tool'] -%}{{ raise_exception('unknown role ' + message.role) }}{%- endif -%}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""


def tensors():
    q, kv = HEADS * HEAD, KV_HEADS * HEAD
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN), 1.0
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", (HIDDEN,), None
        yield p + "post_attention_layernorm.weight", (HIDDEN,), None
        for name, rows, columns in (("self_attn.q_proj", q, HIDDEN), ("self_attn.k_proj", kv, HIDDEN),
                                    ("self_attn.v_proj", kv, HIDDEN), ("self_attn.o_proj", HIDDEN, q),
                                    ("mlp.gate_proj", MLP, HIDDEN), ("mlp.up_proj", MLP, HIDDEN),
                                    ("mlp.down_proj", HIDDEN, MLP)):
            yield f"{p}{name}.weight", (rows, columns), columns ** -0.5
    yield "model.norm.weight", (HIDDEN,), None
    yield "lm_head.weight", (VOCAB, HIDDEN), 2 * HIDDEN ** -0.5


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    rng = random.Random(11)
    header, body = {}, bytearray()
    for name, shape, deviation in tensors():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [1.0 if deviation is None else rng.gauss(0, deviation) for _ in range(count)]
        begin = len(body)
        body += struct.pack(f"<{count}e", *values)
        header[name] = {"dtype": "F16", "shape": list(shape), "data_offsets": [begin, len(body)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (out / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
    (out / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float16", "vocab_size": VOCAB,
        "hidden_size": HIDDEN, "intermediate_size": MLP, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "hidden_act": "silu", "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "attention_bias": False,
        "mlp_bias": False, "bos_token_id": 1, "eos_token_id": 3}, indent=1))
    shutil.copy(DATA / "tiny_tokenizer.json", out / "tokenizer.json")
    (out / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|bos|>", "eos_token": "<|im_end|>", "chat_template": TEMPLATE}))


main()
