"""PNG plots of a result, by matplotlib: plots.py RESULT.json FOLDER

One a model: each engine's speed as a share of the machine's limit, with the range of its samples. Where the machine has
no meters the bars are in units of our own median.
"""

import json
import pathlib
import sys

import figures
import table

COLOURS = {"spyre": "#1f5fbf", "llama.cpp": "#c8a02a", "xllamacpp": "#d9704f", "openvino": "#7a52a1", "vllm-cpu": "#3a9a64"}


def bars_of(result, model):
    """(labels of the groups, {engine: [(height, below, above, text) or None]}, label of the axis)."""
    rows = [row for row in figures.rows_of(result) if row["model"] == model]
    names = [n for n in table.engines_of(result, model) if any(n in row["engines"] for row in rows)]
    metered = all(row["limit"] for row in rows)
    bars = {name: [] for name in names}
    for row in rows:
        ours = row["engines"].get("spyre", {}).get("median")
        unit = row["limit"] / 100 if metered else ours
        for name in names:
            e = row["engines"].get(name)
            if not e or not unit:
                bars[name].append(None)
                continue
            height = 100 * e["limit_ratio"] if metered else e["median"] / unit
            scale = height / e["median"]
            bars[name].append((height, scale * (e["median"] - e["low"]), scale * (e["high"] - e["median"]), e["median"]))
    return [table.what(row) for row in rows], bars, "% of the machine's limit" if metered else "of spyre's speed"


def draw(result, model, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    labels, bars, axis = bars_of(result, model)
    figure, plot = plt.subplots(figsize=(max(8, 2 + 1.3 * len(labels)), 4.5), layout="constrained")
    width = 0.8 / max(1, len(bars))
    for i, (name, of_engine) in enumerate(bars.items()):
        for x, bar in enumerate(of_engine):
            if bar is None:
                continue
            at = x + (i - (len(bars) - 1) / 2) * width
            plot.bar(at, bar[0], width * 0.92, color=COLOURS.get(name, "#888888"), label=name if x == 0 else None)
            plot.errorbar(at, bar[0], [[bar[1]], [bar[2]]], color="black", linewidth=0.8, capsize=2)
            plot.annotate(table.figure(bar[3]), (at, bar[0] + bar[2]), ha="center", va="bottom", fontsize=6, rotation=90,
                          xytext=(0, 3), textcoords="offset points")  # fmt: skip
    plot.set_xticks(range(len(labels)), labels, fontsize=8)
    plot.set_ylabel(axis)
    plot.margins(y=0.15)
    plot.set_title(f"{model}, tokens/s on the bars\n{table.machine_line(result)}", fontsize=8)
    handles, names = plot.get_legend_handles_labels()
    plot.legend(handles, names, fontsize=8, ncols=len(bars))
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main():
    result = json.loads(pathlib.Path(sys.argv[1]).read_text())
    folder = pathlib.Path(sys.argv[2])
    for model in result["models"]:
        if any(s["model"] == model for s in result["samples"]):
            draw(result, model, folder / f"{model}.png")


if __name__ == "__main__":
    main()
