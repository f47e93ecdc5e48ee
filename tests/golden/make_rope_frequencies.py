#!/usr/bin/env python3
"""Makes data/rope_frequencies.json: the fp32 inverse frequencies that Hugging Face transformers rotates by.

Each entry has `rope` (config.json's rope_parameters), `head_size`, and `bits`, the fp32 values as integers.
"""

import json
import pathlib

import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

ROPES = [
    {"rope_type": "default", "rope_theta": 10000.0},
    {"rope_type": "default", "rope_theta": 1000000.0},
    {"rope_type": "linear", "rope_theta": 100000.0, "factor": 3.0},
    {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 8192},
    {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0, "original_max_position_embeddings": 32768},
]
HEAD_SIZES = [64, 80, 100, 128]


def main():
    out = []
    for rope in ROPES:
        for size in HEAD_SIZES:
            config = LlamaConfig(head_dim=size, max_position_embeddings=131072, rope_parameters=dict(rope))
            frequencies = LlamaRotaryEmbedding(config).inv_freq.float()
            out.append({"rope": rope, "head_size": size, "bits": frequencies.view(torch.int32).tolist()})
    path = pathlib.Path(__file__).parent / "data" / "rope_frequencies.json"
    path.write_text("[\n" + ",\n".join(json.dumps(e, separators=(",", ":")) for e in out) + "\n]\n")


if __name__ == "__main__":
    main()
