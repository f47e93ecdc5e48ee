"""One HTML page of a result, whole in itself: tables, ranges, limits, every sample, and the plots inside."""

import base64
import html
import json

import environments as env
import table
from environments import HERE

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; } th, td { padding: .25em .7em; border-bottom: 1px solid #ccc; }
th { text-align: left; } td { text-align: right; font-variant-numeric: tabular-nums; }
td:first-child { text-align: left; }
img { max-width: 100%; } .thrown { color: #a33; } summary { cursor: pointer; }
"""


def table_html(head, rows):
    cells = lambda tag, values: "<tr>" + "".join(f"<{tag}>{html.escape(v)}</{tag}>" for v in values) + "</tr>"
    return "<table>" + cells("th", head) + "".join(cells("td", r) for r in rows) + "</table>"


def samples_html(result, model):
    head = ["case", "engine", "turn", "prefill", "decode", "GB/s before", "after", "GFLOP/s before", "after", ""]
    number = lambda value: "" if value is None else f"{value:.4g}"
    rows = []
    for s in (s for s in result["samples"] if s["model"] == model):
        before, after = s["limits_before"], s["limits_after"]
        rows.append([s["case"], s["engine"], str(s["turn"]), number(s["figures"].get("prefill")),
                     number(s["figures"].get("decode")), number(before.get("gbps")), number(after.get("gbps")),
                     number(before.get("gflops")), number(after.get("gflops")), s["thrown_away"] or ""])  # fmt: skip
    return f"<details><summary>every sample</summary>{table_html(head, rows)}</details>"


def model_html(result, model, plot):
    parts = [f"<h2>{html.escape(model)}</h2>", f"<p>{html.escape(table.limits_line(result, model))}; ",
             f"{html.escape(table.thrown_away_line(result, model))}.</p>"]  # fmt: skip
    if plot is not None:
        data = base64.b64encode(plot).decode()
        parts.append(f'<img alt="plot of {html.escape(model)}" src="data:image/png;base64,{data}">')
    parts.append(table_html(*table.rows_as_cells(result, model)))
    lines = [f"<li>{html.escape(name)}: {html.escape(facts)}</li>" for name, facts in table.engine_lines(result, model)]
    parts.append("<ul>" + "".join(lines) + "</ul>")
    parts.append(samples_html(result, model))
    return "".join(parts)


def as_html(result, plots):
    """`plots`: PNG bytes by model."""
    body = "".join(model_html(result, model, plots.get(model)) for model in result["models"])
    return (f"<!doctype html><html lang=en><meta charset=utf-8><title>spyre beside its peers</title><style>{STYLE}</style>"
            f"<h1>spyre beside its peers</h1><p>{html.escape(table.machine_line(result))}. "
            f"<code>{html.escape(result['command'])}</code></p>"
            "<p>Tokens per second; medians with the range of the samples. The limit is the larger of the time that the "
            "bytes take at the stream rate and the products at the peak of the instruction that our kernels use, both "
            f"measured beside each sample.</p>{body}</html>\n")  # fmt: skip


def draw_plots(result, folder):
    """PNGs by model; none, and a line that says why, without matplotlib."""
    path = folder / "plots.json"
    path.write_text(json.dumps(result))
    try:
        env.run(env.own_python(), HERE / "plots.py", path, folder, what="plots.py")
    except env.Unavailable as error:
        env.say(f"no plots: {error}")
        return {}
    finally:
        path.unlink()
    return {m: (folder / f"{m}.png").read_bytes() for m in result["models"] if (folder / f"{m}.png").exists()}


def write(result, path):
    """The page stands beside the result at `path`, under the same name."""
    out = path.with_suffix(".html")
    out.write_text(as_html(result, draw_plots(result, path.parent)))
    env.say(f"wrote {out}")
