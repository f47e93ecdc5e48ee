#!/usr/bin/env python3
"""Makes tiny random checkpoints of Llama and its relatives, and what Hugging Face transformers computes from them.

    make_golden.py [--out data] [--only NAME ...] [--check]

Each folder holds config.json, *.safetensors, golden.json (prompt, errors, top-5, greedy ids) and golden.safetensors
(full fp32 logits of some positions). README.md beside this file describes every key. --check writes nothing and
says whether the committed logits can be remade.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import shutil
import sys
import zlib

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

import golden_io as io

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
GREEDY_IDS = 16
LOGIT_ROWS = 24
PROMPT_TRIES = 100
DISTINCT_IDS = 8


@dataclasses.dataclass
class Spec:
    """One checkpoint. `form` is how config.json is written: 'minimal' leaves out every key that has a default (Llama 2
    files), 'classic' has rope_theta and rope_scaling (Llama 3, SmolLM2 files), 'current' is what transformers writes.
    `extra` holds the family's own keys; `gains` changes single gains of make_weights."""

    name: str
    what: str
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    layers: int
    prompt: int  # ids in the prompt
    dtype: str
    form: str
    tied: bool = False
    biases: bool = False
    theta: float = 10000.0
    rope_scaling: dict | None = None
    shards: int = 1
    eps: float = 1e-5
    max_position: int = 512
    family: str = "llama"
    extra: dict = dataclasses.field(default_factory=dict)
    gains: dict = dataclasses.field(default_factory=dict)

    @property
    def architecture(self):
        return self.family.capitalize() + "ForCausalLM"

    @property
    def qkv_bias(self):
        return self.biases or self.family == "qwen2"

    @property
    def mlp_bias(self):
        return self.biases and self.family in ("llama", "granite")


SPECS = [
    Spec("llama_mha16", "MHA with heads of 16; fp32 file; a Llama 2 config.json without head_dim, num_key_value_heads, rope_theta",
         hidden=48, heads=3, kv_heads=3, head_dim=16, intermediate=100, vocab=257, layers=2, prompt=103,
         dtype="float32", form="minimal", eps=1e-6),
    Spec("llama_gqa64", "GQA 9/3 with heads of 64 as in SmolLM2-135M, tied head",
         hidden=36, heads=9, kv_heads=3, head_dim=64, intermediate=94, vocab=307, layers=2, prompt=129,
         dtype="bfloat16", form="classic", tied=True, theta=100000.0),
    Spec("llama_mqa128", "MQA with heads of 128; biases in attention and MLP",
         hidden=48, heads=3, kv_heads=1, head_dim=128, intermediate=104, vocab=151, layers=2, prompt=117,
         dtype="float16", form="current", biases=True, theta=500000.0),
    Spec("llama3_scaled", "llama3 rope scaling with all three of its regimes; groups of 3; 3 shards that split one layer; "
         "a prompt longer than 512",
         hidden=60, heads=6, kv_heads=2, head_dim=32, intermediate=100, vocab=283, layers=2, prompt=530,
         dtype="bfloat16", form="classic", shards=3, max_position=1024,
         rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                       "original_max_position_embeddings": 128}),
    Spec("llama_odd", "an odd hidden size, heads of 80 (not hidden/heads), MQA, 3 layers, tied head",
         hidden=39, heads=3, kv_heads=1, head_dim=80, intermediate=200, vocab=331, layers=3, prompt=100,
         dtype="bfloat16", form="current", tied=True, theta=10000.0),
    Spec("llama_head96", "heads of 96, GQA 4/2, llama3 scaling in transformers' present form (rope_parameters)",
         hidden=40, heads=4, kv_heads=2, head_dim=96, intermediate=110, vocab=263, layers=2, prompt=140,
         dtype="float16", form="current", theta=20000.0,
         rope_scaling={"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 2.0,
                       "original_max_position_embeddings": 64}),
    Spec("llama_linear", "linear rope scaling in its oldest spelling ('type'), heads of 32",
         hidden=44, heads=4, kv_heads=2, head_dim=32, intermediate=90, vocab=277, layers=2, prompt=130,
         dtype="float16", form="classic", rope_scaling={"type": "linear", "factor": 2.5}),
    Spec("llama_yarn", "YaRN with every key of its own: bounds that are not rounded, an attention factor of the file",
         hidden=42, heads=3, kv_heads=1, head_dim=64, intermediate=104, vocab=263, layers=2, prompt=150,
         dtype="bfloat16", form="current", theta=10000.0,
         rope_scaling={"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "beta_fast": 12.0,
                       "beta_slow": 1.5, "truncate": False, "attention_factor": 0.8}),
    Spec("mistral_gqa80", "Mistral: GQA 6/2, heads of 80, a window that no position reaches",
         hidden=46, heads=6, kv_heads=2, head_dim=80, intermediate=98, vocab=269, layers=2, prompt=120,
         dtype="bfloat16", form="classic", theta=1000000.0, family="mistral", extra={"sliding_window": 512}),
    Spec("qwen2_gqa64", "Qwen2: biases on q, k and v alone; the head size follows from hidden / heads; tied head",
         hidden=128, heads=2, kv_heads=1, head_dim=64, intermediate=108, vocab=211, layers=2, prompt=110,
         dtype="bfloat16", form="classic", theta=1000000.0, tied=True, eps=1e-6, family="qwen2",
         extra={"sliding_window": 64, "use_sliding_window": False, "max_window_layers": 1}),
    Spec("qwen2_yarn", "Qwen2 with YaRN as its model card says to write it; heads of 32",
         hidden=52, heads=4, kv_heads=2, head_dim=32, intermediate=100, vocab=281, layers=2, prompt=200,
         dtype="float16", form="classic", theta=1000000.0, eps=1e-6, family="qwen2", max_position=256,
         rope_scaling={"factor": 4.0, "original_max_position_embeddings": 64, "type": "yarn"}),
    Spec("qwen3_gqa128", "Qwen3: QK-norm over heads of 128, GQA 4/2",
         hidden=52, heads=4, kv_heads=2, head_dim=128, intermediate=92, vocab=251, layers=2, prompt=125,
         dtype="bfloat16", form="current", theta=1000000.0, eps=1e-6, family="qwen3"),
    Spec("qwen3_gqa48", "Qwen3: QK-norm over heads of 48, GQA 3/1, biases, tied head",
         hidden=50, heads=3, kv_heads=1, head_dim=48, intermediate=110, vocab=293, layers=3, prompt=115,
         dtype="float16", form="classic", tied=True, theta=1000000.0, eps=1e-6, family="qwen3", biases=True,
         extra={"use_sliding_window": False, "sliding_window": None, "max_window_layers": 3}),
    Spec("granite_gqa64", "Granite: all four multipliers, tied head, GQA 6/2 with heads of 64",
         hidden=42, heads=6, kv_heads=2, head_dim=64, intermediate=106, vocab=271, layers=2, prompt=118,
         dtype="bfloat16", form="classic", tied=True, family="granite",
         extra={"embedding_multiplier": 0.25, "attention_multiplier": 0.03, "residual_multiplier": 0.3, "logits_scaling": 4.0},
         gains={"head": 12.0, "q": 2.9, "k": 2.9, "o": 4.0, "down": 3.5}),
    Spec("granite_gqa128", "Granite: the multipliers of Granite 3.3, heads of 128, untied",
         hidden=48, heads=3, kv_heads=1, head_dim=128, intermediate=94, vocab=259, layers=2, prompt=112,
         dtype="float16", form="current", theta=10000000.0, family="granite",
         extra={"embedding_multiplier": 12.0, "attention_multiplier": 0.0078125, "residual_multiplier": 0.22,
                "logits_scaling": 16.0},
         gains={"embed": 0.1, "head": 48.0, "q": 4.8, "k": 4.8, "o": 6.0, "down": 5.0}),
]


def rng(*key):
    return np.random.Generator(np.random.PCG64(zlib.crc32("/".join(map(str, key)).encode())))


def make_weights(spec):
    """Random weights with lively results. Activations after a norm have unit variance, so with q and k of deviation
    s the scores q.k/sqrt(head_dim) have deviation s^2: s = 1.4 gives 2, attention that looks at few tokens. The head
    gives logits a deviation of about 3. With QK-norm the norms' weights take the place of q's and k's deviation."""
    h, q_dim, kv_dim = spec.hidden, spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    weights = {}

    def linear(name, rows, columns, gain, bias):
        gain = spec.gains.get(name.split(".")[-1].removesuffix("_proj"), gain)
        weights[name + ".weight"] = rng(spec.name, name).standard_normal((rows, columns)) * (gain / math.sqrt(columns))
        if bias:
            weights[name + ".bias"] = rng(spec.name, name, "bias").standard_normal(rows) * 0.3

    def norm(name, size=h, gain=1.0):
        weights[name + ".weight"] = gain * (1.0 + 0.25 * rng(spec.name, name).standard_normal(size))

    head_gain = spec.gains.get("head", 3.0)
    weights["model.embed_tokens.weight"] = rng(spec.name, "embed").standard_normal((spec.vocab, h)) * (
        head_gain / math.sqrt(h) if spec.tied else spec.gains.get("embed", 1.0))
    for layer in range(spec.layers):
        p = f"model.layers.{layer}."
        norm(p + "input_layernorm")
        linear(p + "self_attn.q_proj", q_dim, h, 1.4, spec.qkv_bias)
        linear(p + "self_attn.k_proj", kv_dim, h, 1.4, spec.qkv_bias)
        linear(p + "self_attn.v_proj", kv_dim, h, 1.2, spec.qkv_bias)
        if spec.family == "qwen3":
            norm(p + "self_attn.q_norm", spec.head_dim, 1.4)
            norm(p + "self_attn.k_norm", spec.head_dim, 1.4)
        linear(p + "self_attn.o_proj", h, q_dim, 1.5, spec.biases)
        norm(p + "post_attention_layernorm")
        linear(p + "mlp.gate_proj", spec.intermediate, h, 1.5, spec.mlp_bias)
        linear(p + "mlp.up_proj", spec.intermediate, h, 1.2, spec.mlp_bias)
        linear(p + "mlp.down_proj", h, spec.intermediate, 1.2, spec.mlp_bias)
    norm("model.norm")
    if not spec.tied:
        linear("lm_head", spec.vocab, h, head_gain, False)
    return {k: torch.from_numpy(v).to(DTYPES[spec.dtype]) for k, v in weights.items()}


def write_config(spec, folder):
    config = dict(
        vocab_size=spec.vocab, hidden_size=spec.hidden, intermediate_size=spec.intermediate,
        num_hidden_layers=spec.layers, num_attention_heads=spec.heads, num_key_value_heads=spec.kv_heads,
        head_dim=spec.head_dim, hidden_act="silu", max_position_embeddings=spec.max_position, rms_norm_eps=spec.eps,
        attention_bias=spec.biases, mlp_bias=spec.biases, tie_word_embeddings=spec.tied, bos_token_id=1, eos_token_id=2,
        **spec.extra)
    if spec.family in ("mistral", "qwen2"):
        del config["attention_bias"]
    if spec.family in ("mistral", "qwen2", "qwen3"):
        del config["mlp_bias"]
    if spec.head_dim == spec.hidden / spec.heads and spec.family == "qwen2":
        del config["head_dim"]
    if spec.form == "current":
        rope = {"rope_type": "default", **(spec.rope_scaling or {}), "rope_theta": spec.theta}
        made = AutoConfig.for_model(spec.family, rope_parameters=rope, architectures=[spec.architecture], dtype=spec.dtype, **config)
        made.save_pretrained(folder)
        return
    head = {"architectures": [spec.architecture], "model_type": spec.family, "torch_dtype": spec.dtype}
    if spec.form == "minimal":  # none of these keys existed, or was written, in 2023
        for key in ("num_key_value_heads", "head_dim", "attention_bias", "mlp_bias"):
            del config[key]
    else:
        config.update(rope_theta=spec.theta, rope_scaling=spec.rope_scaling, use_cache=True)
        if spec.family == "llama":
            config["pretraining_tp"] = 1
    (folder / "config.json").write_text(json.dumps({**head, **config}, indent=2) + "\n")


def write_checkpoint(spec, folder):
    write_config(spec, folder)
    weights = make_weights(spec)
    meta = {"format": "pt"}
    if spec.shards == 1:
        save_file(weights, folder / "model.safetensors", metadata=meta)
        return
    names = sorted(weights)
    where = {}
    for shard in range(spec.shards):  # dealt out in turn: the parts of one fused linear lie in different files
        file = f"model-{shard + 1:05d}-of-{spec.shards:05d}.safetensors"
        part = {n: weights[n] for n in names[shard::spec.shards]}
        save_file(part, folder / file, metadata=meta)
        where.update({n: file for n in part})
    index = {"metadata": {"total_size": sum(w.numel() * w.element_size() for w in weights.values())},
             "weight_map": dict(sorted(where.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def load(folder, dtype, attention="sdpa"):
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attention, output_loading_info=True)
    if info["missing_keys"] or info["unexpected_keys"]:
        sys.exit(f"{folder}: transformers did not take every tensor: {info}")
    return model.eval()


def choose_prompt(spec, model):
    """Of PROMPT_TRIES random prompts, the one whose greedy ids stand farthest from a tie: so that the ids, and not
    only the logits, can be asked of a 16-bit run. A continuation that only repeats itself would show little: it needs
    DISTINCT_IDS different ones. A prompt of more than 256 ids is tried less often."""
    best = None
    for attempt in range(PROMPT_TRIES if spec.prompt <= 256 else PROMPT_TRIES // 4):
        ids = rng(spec.name, "prompt", attempt).integers(3, spec.vocab, spec.prompt).tolist()
        new, margins = io.greedy(model, ids, GREEDY_IDS)
        if len(set(new)) >= DISTINCT_IDS and (best is None or min(margins) > min(best[2])):
            best = (ids, new, margins)
    if best is None:
        sys.exit(f"{spec.name}: every one of the prompts tried ends in a loop; change the gains in make_weights")
    return best


@torch.no_grad()
def attention_share(folder, ids):
    """Mean entropy of the attention weights as a share of uniform attention's, over rows that see >= 16 tokens."""
    out = load(folder, torch.float32, "eager")(torch.tensor([ids]), output_attentions=True, use_cache=False)
    uniform = torch.log(torch.arange(1, len(ids) + 1, dtype=torch.float32))
    shares = [(-(p * torch.log(p.clamp_min(1e-30))).sum(-1) / uniform)[..., 16:].mean() for p in out.attentions]
    return float(sum(shares) / len(shares))


def sensitivity(spec, folder, ids, reference):
    """What each mistake in an implementation would cost, as max|difference|/max|logit|: the golden must see it."""
    found = {}

    def mistake(name, change):
        model = load(folder, torch.float32)
        with torch.no_grad():
            change(model)
        found[name] = io.significant(io.relative_error(io.all_logits(model, ids), reference), 3)

    def interleave(model):  # Q and K rows in the order of GGUF files, used as if they were Hugging Face's
        for layer in model.model.layers:
            for proj in (layer.self_attn.q_proj, layer.self_attn.k_proj):
                w = proj.weight
                w.copy_(w.view(-1, 2, spec.head_dim // 2, w.shape[1]).transpose(1, 2).reshape(w.shape))

    def norms(model):
        for name, p in model.named_parameters():
            if "norm" in name:
                p.fill_(1.0)

    def biases(model):
        for name, p in model.named_parameters():
            if name.endswith(".bias"):
                p.zero_()

    def rotary(model, factor):
        model.model.rotary_emb.inv_freq.mul_(factor)

    def kv_order(model):  # query head i reads KV head i % kv_heads
        for layer in model.model.layers:
            q = layer.self_attn.q_proj.weight
            q.copy_(q.view(spec.kv_heads, -1, spec.head_dim, q.shape[1]).transpose(0, 1).reshape(q.shape))

    def unscaled(model):
        half = torch.arange(0, spec.head_dim, 2, dtype=torch.float32)
        model.model.rotary_emb.inv_freq.copy_(1.0 / spec.theta ** (half / spec.head_dim))

    def attention_factor(model):
        model.model.rotary_emb.attention_scaling = 1.0

    def qk_norms(model):
        for layer in model.model.layers:
            layer.self_attn.q_norm = layer.self_attn.k_norm = torch.nn.Identity()

    def branches(model):
        for layer in model.model.layers:
            layer.residual_multiplier = 1.0

    def scores(model):
        for layer in model.model.layers:
            layer.self_attn.scaling = spec.head_dim ** -0.5

    if spec.family == "qwen3":
        mistake("qk_norm_left_out", qk_norms)
    if spec.family == "granite":
        mistake("embedding_multiplier_ignored", lambda m: setattr(m.model, "embedding_multiplier", 1.0))
        mistake("attention_multiplier_ignored", scores)
        mistake("residual_multiplier_ignored", branches)
        mistake("logits_scaling_ignored", lambda m: setattr(m.config, "logits_scaling", 1.0))
    if spec.rope_scaling and "yarn" in spec.rope_scaling.values():
        mistake("attention_factor_ignored", attention_factor)
    mistake("q_k_rows_interleaved", interleave)
    mistake("norm_weights_ignored", norms)
    mistake("positions_1_percent_off", lambda m: rotary(m, 1.01))
    if spec.qkv_bias:
        mistake("biases_ignored", biases)
    if spec.rope_scaling:
        mistake("rope_scaling_ignored", unscaled)
    if 1 < spec.kv_heads < spec.heads:
        mistake("kv_heads_dealt_in_turn", kv_order)
    return found


def rope_regimes(spec, model):
    """How many of the frequencies are kept, blended and divided by `factor`."""
    if not spec.rope_scaling or "linear" in spec.rope_scaling.values():
        return None
    if "yarn" in spec.rope_scaling.values():
        plain = spec.theta ** (-np.arange(0, spec.head_dim, 2) / spec.head_dim)
        slower = plain / model.model.rotary_emb.inv_freq.numpy()
        kept, divided = int((slower < 1.0001).sum()), int((slower > 0.9999 * spec.rope_scaling["factor"]).sum())
        return {"kept": kept, "blended": len(plain) - kept - divided, "divided": divided}
    half = np.arange(0, spec.head_dim, 2)
    wave = 2 * np.pi * spec.theta ** (half / spec.head_dim)
    s = spec.rope_scaling
    low, high = (s["original_max_position_embeddings"] / s[k] for k in ("low_freq_factor", "high_freq_factor"))
    return {"kept": int((wave < high).sum()), "blended": int(((wave >= high) & (wave <= low)).sum()),
            "divided": int((wave > low).sum())}


def choose_rows(spec, length):
    """Positions whose logits are kept whole: both ends, both sides of the attention's steps, the rest at random."""
    fixed = {r for r in (0, 1, 63, 64, 65, 511, 512, length - 1) if r < length}
    others = sorted(set(range(length)) - fixed)
    return sorted(fixed | set(rng(spec.name, "rows").choice(others, LOGIT_ROWS - len(fixed), replace=False).tolist()))


def make_golden(spec, folder):
    model = load(folder, torch.float32)
    ids, new, margins = choose_prompt(spec, model)
    reference = io.all_logits(model, ids)
    rows = choose_rows(spec, len(ids))
    errors = {}
    for name in ("float16", "bfloat16"):
        errors[name] = {}
        for attention in ("sdpa", "eager"):
            got = io.all_logits(load(folder, DTYPES[name], attention), ids)
            top = torch.topk(io.log_probs(reference), io.TOP_K).indices
            delta = (io.log_probs(got) - io.log_probs(reference)).abs()
            errors[name][attention] = {
                "all_positions": io.significant(io.relative_error(got, reference)),
                "all_positions_rms": io.significant(float((got - reference).pow(2).mean().sqrt() / reference.abs().max())),
                "logit_rows": io.significant(float((got - reference)[rows].abs().max() / reference.abs().max())),
                "top5_logprob": io.significant(float(delta.gather(-1, top).max())),
            }
        half, half_margins = io.greedy(load(folder, DTYPES[name]), ids, GREEDY_IDS)
        errors[name]["greedy_ids_equal"] = half == new
    top_ids, top_logprobs = io.top_entries(reference)
    golden = {
        "what": spec.what,
        "made_with": io.versions(),
        "prompt_token_ids": ids,
        "logit_rows": rows,
        "max_abs_logit": io.significant(float(reference.abs().max()), 7),
        "logit_deviation": io.significant(float(reference.std())),
        "attention_entropy_share": io.significant(attention_share(folder, ids)),
        "rope_regimes": rope_regimes(spec, model),
        "fp32_error_against_fp64": io.significant(io.relative_error(reference, io.all_logits(load(folder, torch.float64), ids))),
        "hf_error": errors,
        "cost_of_mistakes": sensitivity(spec, folder, ids, reference),
        "greedy_token_ids": new,
        "greedy_margins": margins,
        "top5_ids": top_ids,
        "top5_logprobs": top_logprobs,
    }
    io.write_json(folder / "golden.json", golden)
    save_file({"logits": reference[rows].float().contiguous()}, folder / "golden.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)  # safetensors writes 0600
    return golden


def summary(spec, folder, golden):
    size = sum(f.stat().st_size for f in folder.iterdir())
    hf = {k: v["sdpa"]["all_positions"] for k, v in golden["hf_error"].items()}
    equal = {k: v["greedy_ids_equal"] for k, v in golden["hf_error"].items()}
    print(f"{spec.name:14} {size / 1000:6.0f} kB  max|logit| {golden['max_abs_logit']:.2f} sd {golden['logit_deviation']:.2f}  "
          f"entropy {golden['attention_entropy_share']:.2f}  fp32 {golden['fp32_error_against_fp64']:.1e}  HF {hf}  "
          f"least margin {min(golden['greedy_margins'])} equal {equal}\n    ids {golden['greedy_token_ids']}\n    mistakes "
          f"{golden['cost_of_mistakes']} regimes {golden['rope_regimes']}")


def check(spec, folder):
    golden = json.loads((folder / "golden.json").read_text())
    got = io.all_logits(load(folder, torch.float32), golden["prompt_token_ids"])[golden["logit_rows"]]
    error = io.relative_error(got, load_file(folder / "golden.safetensors")["logits"].double())
    print(f"{spec.name:14} max|difference|/max|logit| = {error:.2e}")
    return error <= 1e-5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "data")
    parser.add_argument("--only", nargs="+", choices=[s.name for s in SPECS], help="these models alone")
    parser.add_argument("--check", action="store_true", help="compare the committed logits with this machine's; write nothing")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    good = True
    for spec in SPECS:
        if args.only and spec.name not in args.only:
            continue
        folder = args.out / spec.name
        if args.check:
            good &= check(spec, folder)
            continue
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_checkpoint(spec, folder)
        summary(spec, folder, make_golden(spec, folder))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
