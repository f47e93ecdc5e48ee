"""The same random weights for every engine: a GGUF file, and a Hugging Face folder for those who do not read GGUF.

Both are written tensor by tensor from the same seeded stream (tests/golden/make_random_model.py), so the 16-bit numbers
in them are equal and no model is ever in memory as a whole. A random model runs as fast as a trained one of its shape:
nothing here looks at the values.

    models.py SHAPE DTYPE FOLDER [--hugging-face]     needs the packages numpy and gguf
"""

import argparse
import json
import math
import pathlib
import sys
from types import SimpleNamespace

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "golden"))

MAX_POSITION = 16384
SHAPES = {"135m": "smollm2-135m", "1b": "llama-3.2-1b", "8b": "llama-3.1-8b"}
DTYPES = {"f16": "float16", "bf16": "bfloat16"}
FILE_TYPES = {"f16": 1, "bf16": 32}  # general.file_type: most tensors of this type
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
PARTS = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}  # fmt: skip


def file_name(shape, dtype):
    return f"{shape}-{dtype}.gguf"


def folder_name(shape, dtype):
    return f"{shape}-{dtype}"


def settings(shape, dtype):
    """What make_random_model.py calls its arguments."""
    import make_random_model as random_model

    values = dict(zip(random_model.FIELDS, random_model.SHAPES[SHAPES[shape]]))
    return SimpleNamespace(**values, dtype=DTYPES[dtype], max_position=MAX_POSITION, seed=0)


def vocabulary(size):
    """(tokens, kinds, merges) of a byte-level BPE vocabulary: each byte, two merges, and words that no text gives.

    Every token but the bytes decodes to plain letters, so that no server waits for the rest of a character.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    codes = printable + [256 + i for i in range(256 - len(printable))]
    tokens = ["<|end|>", *(chr(c) for c in codes), "ab", "abc"]
    tokens += [f"w{i}" for i in range(len(tokens), size)]
    return tokens[:size], [3] + [1] * (size - 1), ["a b", "ab c"]


def gguf_name(name):
    stem = name.removesuffix(".weight")
    if stem in WHOLE:
        return WHOLE[stem] + ".weight"
    layer, part = stem.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{PARTS[part]}.weight"


def interleaved(w, heads):
    """Rows (i, i + d/2) of each head side by side: where a GGUF file of a Llama has them."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def whole(array_pieces, shape, convert):
    """A tensor out of its pieces, in the 16-bit form."""
    import numpy as np

    return np.concatenate([convert(piece) for piece in array_pieces]).reshape(shape)


def add_metadata(out, a, dtype):
    out.add_name(f"random {a.layers} x {a.hidden}")
    out.add_file_type(FILE_TYPES[dtype])
    out.add_context_length(a.max_position)
    out.add_embedding_length(a.hidden)
    out.add_block_count(a.layers)
    out.add_feed_forward_length(a.intermediate)
    out.add_head_count(a.heads)
    out.add_head_count_kv(a.kv_heads)
    out.add_key_length(a.head_dim)
    out.add_value_length(a.head_dim)
    out.add_rope_dimension_count(a.head_dim)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_freq_base(a.theta)
    out.add_vocab_size(a.vocab)
    tokens, kinds, merges = vocabulary(a.vocab)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("smollm")
    out.add_token_list(tokens)
    out.add_token_types(kinds)
    out.add_token_merges(merges)
    out.add_bos_token_id(0)
    out.add_eos_token_id(0)
    out.add_add_bos_token(False)


def gguf_tensors(a, dtype):
    """(name, shape, kind, function that draws it) for every tensor: norms in 32 bits, the rest in 16."""
    import gguf
    import make_random_model as random_model
    import numpy as np

    _, convert = random_model.DTYPES[a.dtype]
    kind = gguf.GGMLQuantizationType.F16 if dtype == "f16" else gguf.GGMLQuantizationType.BF16
    for name, shape, deviation in random_model.tensor_table(a):

        def draw(name=name, shape=shape, deviation=deviation):
            array = whole(random_model.pieces(name, shape, deviation, a.seed), shape, convert)
            if deviation is None:  # the same 16-bit value, widened
                return array.astype(np.float32) if dtype == "f16" else (array.astype(np.uint32) << 16).view(np.float32)
            heads = {"q_proj": a.heads, "k_proj": a.kv_heads}.get(name.rsplit(".", 2)[-2])
            return np.ascontiguousarray(interleaved(array, heads) if heads else array)

        yield gguf_name(name), shape, gguf.GGMLQuantizationType.F32 if deviation is None else kind, draw


def write_gguf(path, shape, dtype):
    import gguf
    import numpy as np

    a = settings(shape, dtype)
    partial = path.with_suffix(".partial")
    out = gguf.GGUFWriter(partial, "llama")
    add_metadata(out, a, dtype)
    tensors = list(gguf_tensors(a, dtype))
    for name, extents, kind, _ in tensors:
        size = 4 if kind == gguf.GGMLQuantizationType.F32 else 2
        storage = {4: np.float32, 2: np.float16}[size]
        out.add_tensor_info(name, extents, np.dtype(storage), math.prod(extents) * size, raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_ti_data_to_file()
    for name, _, _, draw in tensors:
        out.write_tensor_data(draw())
    out.close()
    partial.rename(path)


def write_tokenizer(folder, a):
    tokens, _, merges = vocabulary(a.vocab)
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": 0, "content": tokens[0], "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": tokens[0], "bos_token": tokens[0]})
    )


def write_folder(folder, shape, dtype):
    import make_random_model as random_model

    a = settings(shape, dtype)
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder, a)
    random_model.write_shard(folder / "model.partial", list(random_model.tensor_table(a)), a.dtype, a.seed)
    (folder / "model.partial").rename(folder / "model.safetensors")
    random_model.write_config(a, folder / "config.json")  # the last: its presence says that the folder is whole


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("dtype", choices=DTYPES)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--hugging-face", action="store_true", help="the folder as well as the file")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    path = args.folder / file_name(args.shape, args.dtype)
    if not path.exists():
        write_gguf(path, args.shape, args.dtype)
    folder = args.folder / folder_name(args.shape, args.dtype)
    if args.hugging_face and not (folder / "config.json").exists():
        write_folder(folder, args.shape, args.dtype)


if __name__ == "__main__":
    main()
