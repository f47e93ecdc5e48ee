"""What the golden scripts share: reading logits off a model, and writing golden.json so that a person can read it."""

import json
import platform

import numpy as np
import torch
import transformers

TOP_K = 5


def versions():
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
    }


@torch.no_grad()
def all_logits(model, ids):
    """Logits of every position, [len(ids), vocabulary], in float64 (so that no later arithmetic adds an error)."""
    return model(torch.tensor([ids]), use_cache=False).logits[0].double()


def log_probs(logits):
    return torch.log_softmax(logits.double(), dim=-1)


def top_entries(logits):
    """The TOP_K most likely ids and their log-probabilities; equal ones in ascending order of id."""
    logp = log_probs(logits)
    order = torch.sort(logp, dim=-1, descending=True, stable=True).indices[..., :TOP_K]
    values = torch.gather(logp, -1, order)
    return order.tolist(), [[round(v, 6) for v in row] for row in values.tolist()]


def greedy(model, ids, count, eos=None):
    """`count` greedy ids (or up to and with `eos`) and, per id, its logit less the runner-up's."""
    ids, new, margins = list(ids), [], []
    for _ in range(count):
        best = torch.topk(all_logits(model, ids)[-1], 2)
        new.append(int(best.indices[0]))
        margins.append(round(float(best.values[0] - best.values[1]), 5))
        ids.append(new[-1])
        if new[-1] == eos:
            break
    return new, margins


def relative_error(logits, reference):
    """max|difference| / max|reference|: the measure of every golden comparison."""
    return float((logits - reference).abs().max() / reference.abs().max())


def significant(value, digits=5):
    return float(f"{value:.{digits}g}")


def write_json(path, value):
    """Objects one key per line, arrays of plain numbers on one line each."""

    def text(node, indent):
        pad = "  " * (indent + 1)
        if isinstance(node, dict):
            body = ",\n".join(f"{pad}{json.dumps(k)}: {text(v, indent + 1)}" for k, v in node.items())
            return "{\n" + body + "\n" + "  " * indent + "}"
        if isinstance(node, list) and node and isinstance(node[0], (list, dict)):
            return "[\n" + ",\n".join(pad + text(v, indent + 1) for v in node) + "\n" + "  " * indent + "]"
        return json.dumps(node, ensure_ascii=False)

    with open(path, "w", encoding="utf-8") as out:
        out.write(text(value, 0) + "\n")
