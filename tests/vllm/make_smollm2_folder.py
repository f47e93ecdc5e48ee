#!/usr/bin/env python3
"""Makes a Hugging Face folder of SmolLM2-135M-Instruct from its GGUF file: weights in f16, tokenizer, chat template.

    make_smollm2_folder.py SmolLM2-135M-Instruct.Q4_1.gguf OUT

Reading the file is what tests/golden/make_smollm2.py does for the golden data.
"""

import pathlib
import sys

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "golden"))

from make_smollm2 import make_model, make_tokenizer, make_weights, read_gguf  # noqa: E402


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    gguf, out = map(pathlib.Path, sys.argv[1:])
    keys, tensors = read_gguf(gguf)
    tokenizer = make_tokenizer(keys)
    special = {name: keys[f"tokenizer.ggml.{name}_token_id"] for name in ("bos", "eos")}
    model = make_model(keys, make_weights(keys, tensors), torch.float16)
    model.config.bos_token_id, model.config.eos_token_id = special["bos"], special["eos"]
    model.generation_config.bos_token_id, model.generation_config.eos_token_id = special["bos"], special["eos"]
    model.save_pretrained(out)
    tokenizer.bos_token, tokenizer.eos_token = (tokenizer.convert_ids_to_tokens(special[n]) for n in ("bos", "eos"))
    tokenizer.save_pretrained(out)


if __name__ == "__main__":
    main()
