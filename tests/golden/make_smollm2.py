#!/usr/bin/env python3
"""Makes data/smollm2/golden.json: what Hugging Face transformers computes in fp32 from SmolLM2-135M-Instruct.

    make_smollm2.py SmolLM2-135M-Instruct.Q4_1.gguf [--folder HF_FOLDER] [--out data/smollm2]

The weights are those of the GGUF file, dequantised and rounded to f16: what an f16 run holds, whichever way it loads
them. Q and K rows lie interleaved in such a file and are put back into halves first. --folder compares them, and
the tokenizer, with a Hugging Face folder made from the same file by other means.
"""

import argparse
import hashlib
import pathlib
import sys

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import golden_io as io

GREEDY_IDS = 16
COMPLETION = "The capital of France is"
QUESTION = "What is the capital of France? Answer in one sentence."
# Long enough that a wrong layout of Q and K shows, varied enough to ask for digits, quotes, code and UTF-8.
PROSE = """On the third morning the river had fallen by almost two metres, and the ferry could cross again. Marta counted \
the crates twice: 48 of flour, 17 of salt, and one, badly nailed, that belonged to nobody. "If it is not ours," said \
the pilot, "then it is the river's, and we should leave it where it stands." She laughed, but she wrote it down all \
the same, because a list with a hole in it is worse than no list at all. By noon the fog had lifted from the far bank. \
The old café above the landing was open, its blue door propped with a stone, and somebody had chalked the prices in \
the margin of a newspaper: coffee 1.20 €, soup 3.50 €, a bed for the night 12 €.

```python
def total(prices):
    return sum(p for p in prices if p > 0)
```

The sum, as she had expected, was"""


def read_gguf(path):
    reader = GGUFReader(path)
    keys = {name: field.contents() for name, field in reader.fields.items()}
    return keys, reader.tensors


def split_halves(rows, heads):
    """Row 2i, 2i+1 of each head -> rows i, i + half: the order rotate_half wants."""
    head = rows.shape[0] // heads
    return rows.reshape(heads, head // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)


NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}


def make_weights(keys, tensors):
    heads = {"attn_q": keys["llama.attention.head_count"], "attn_k": keys["llama.attention.head_count_kv"]}
    weights = {}
    for tensor in tensors:
        value = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        part = tensor.name.split(".")
        if part[0] == "blk":
            value = split_halves(value, heads[part[2]]) if part[2] in heads else value
            name = f"model.layers.{part[1]}.{NAMES[part[2]]}.weight"
        else:
            name = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}[part[0]] + ".weight"
        weights[name] = torch.from_numpy(value.astype(np.float16))
    return weights


def make_model(keys, weights, dtype):
    k = lambda name: keys["llama." + name]
    config = LlamaConfig(
        vocab_size=len(keys["tokenizer.ggml.tokens"]), hidden_size=k("embedding_length"), num_hidden_layers=k("block_count"),
        intermediate_size=k("feed_forward_length"), num_attention_heads=k("attention.head_count"),
        num_key_value_heads=k("attention.head_count_kv"), max_position_embeddings=k("context_length"),
        rms_norm_eps=float(np.format_float_positional(np.float32(k("attention.layer_norm_rms_epsilon")))),
        rope_parameters={"rope_type": "default", "rope_theta": float(k("rope.freq_base"))}, tie_word_embeddings=True,
        attn_implementation="sdpa")
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    model = model.to_empty(device="cpu").to(dtype)
    model.load_state_dict({**weights, "lm_head.weight": weights["model.embed_tokens.weight"]})
    model.tie_weights()
    # to_empty left the rotary frequencies unset: they are no part of a checkpoint
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    return model.eval()


def make_tokenizer(keys):
    """Byte-level BPE with single digits: what the pre-tokenizer name `smollm` stands for."""
    k = lambda name: keys["tokenizer.ggml." + name]
    assert (k("model"), k("pre")) == ("gpt2", "smollm"), "this script knows SmolLM2's tokenizer only"
    vocab = {t: i for i, t in enumerate(k("tokens"))}
    made = Tokenizer(models.BPE(vocab, [tuple(m.split(" ", 1)) for m in k("merges")]))
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    made.decoder = decoders.ByteLevel()
    control = 3
    made.add_special_tokens([AddedToken(t, special=True, normalized=False)
                             for t, kind in zip(k("tokens"), k("token_type")) if kind == control])
    return PreTrainedTokenizerFast(tokenizer_object=made, chat_template=keys["tokenizer.chat_template"])


def compare_folder(folder, weights, tokenizer, texts):
    from safetensors.torch import load_file
    from transformers import AutoTokenizer

    other = load_file(folder / "model.safetensors")
    worst = max(float((other[n].float() - w.float()).abs().max()) for n, w in weights.items())
    theirs = AutoTokenizer.from_pretrained(folder)
    same = all(theirs(t)["input_ids"] == tokenizer(t)["input_ids"] for t in texts)
    print(f"{folder}: {len(other)} tensors against {len(weights)}, largest difference {worst}, equal ids {same}")
    if worst != 0 or len(other) != len(weights) or not same:
        sys.exit("the folder holds another model")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "data" / "smollm2")
    args = parser.parse_args()
    torch.set_num_threads(1)

    keys, tensors = read_gguf(args.gguf)
    weights = make_weights(keys, tensors)
    tokenizer = make_tokenizer(keys)
    eos = keys["tokenizer.ggml.eos_token_id"]
    chat = lambda turns, prompt: tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=prompt)
    question = chat([{"role": "user", "content": QUESTION}], True)
    dialogue = chat([
        {"role": "system", "content": "You answer briefly."},
        {"role": "user", "content": "Name three rivers in Germany."},
        {"role": "assistant", "content": "The Rhine, the Elbe and the Danube."},
        {"role": "user", "content": PROSE[:322] + "\n\nHow many crates of flour were there?"},
        {"role": "assistant", "content": "There were 48 crates of flour."}], False)
    if args.folder:
        compare_folder(args.folder, weights, tokenizer, [PROSE, question, dialogue])

    full, half = (make_model(keys, weights, d) for d in (torch.float32, torch.float16))
    prompts = {}
    for name, text, generate in (("prose", PROSE, False), ("dialogue", dialogue, False),
                                 ("completion", COMPLETION, True), ("question", question, True)):
        ids = tokenizer(text)["input_ids"]
        reference, got = io.all_logits(full, ids), io.all_logits(half, ids)
        top = torch.topk(io.log_probs(reference), io.TOP_K).indices
        delta = (io.log_probs(got) - io.log_probs(reference)).abs().gather(-1, top)
        nll = -io.log_probs(reference)[:-1].gather(-1, torch.tensor(ids[1:])[:, None]).mean()
        entry = {
            "text": text,
            "token_ids": ids,
            "mean_nll": io.significant(float(nll)),
            "max_abs_logit": io.significant(float(reference.abs().max()), 7),
            "hf_float16_error": {
                "logits": io.significant(io.relative_error(got, reference)),
                "top5_logprob": io.significant(float(delta.max())),
                "top5_logprob_mean": io.significant(float(delta.mean())),
                "top5_share_within_0.01": io.significant(float((delta <= 0.01).double().mean()), 4),
            },
        }
        if generate:
            new, margins = io.greedy(full, ids, GREEDY_IDS, eos)
            entry.update(greedy_token_ids=new, greedy_margins=margins,
                         greedy_text=tokenizer.decode(new, skip_special_tokens=True),
                         greedy_float16_equal=io.greedy(half, ids, GREEDY_IDS, eos)[0] == new)
        entry["top5_ids"], entry["top5_logprobs"] = io.top_entries(reference)
        prompts[name] = entry
        print(name, len(ids), {k: v for k, v in entry.items() if k.startswith(("hf_", "greedy", "mean"))})

    args.out.mkdir(parents=True, exist_ok=True)
    io.write_json(args.out / "golden.json", {
        "what": "SmolLM2-135M-Instruct, dequantised to f16 and computed in fp32",
        "made_with": io.versions(),
        "gguf": args.gguf.name,
        "gguf_sha256": hashlib.sha256(args.gguf.read_bytes()).hexdigest(),
        "eos_token_id": eos,
        "prompts": prompts,
    })


if __name__ == "__main__":
    main()
