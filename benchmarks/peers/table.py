"""The result as text and as Markdown."""

import cases
import figures

UNITS = {"prefill": "prefill", "decode": "decode"}


def what(row):
    """ "decode, 16 requests" in words."""
    case = cases.ALL[row["case"]]
    if row["metric"] == "prefill":
        return f"prefill {case.prompt}"
    if case.requests > 1:
        return f"decode, batch {case.requests}"
    return "decode, short" if case.prompt < 512 else f"decode at {case.prompt}"


def figure(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def engines_of(result, model):
    """Ours first, then the peers in the order in which they were opened."""
    names = list(result["models"][model]["engines"])
    return sorted(names, key=lambda name: name != "spyre")


def cell(row, name, wanted=1):
    """Median and range; with the number of samples where that is below what was asked for."""
    if name not in row["engines"]:
        return "-"
    e = row["engines"][name]
    few = f", n {e['count']}" if e["count"] < wanted else ""
    return f"{figure(e['median'])} ({figure(e['low'])}-{figure(e['high'])}{few})"


def limit_cell(row):
    """Ours as a share of the limit, and the limit."""
    ours = row["engines"].get("spyre", {}).get("limit_ratio")
    return f"{100 * ours:.0f}% of {figure(row['limit'])}" if ours and row["limit"] else "-"


def rows_as_cells(result, model):
    """(headings, rows) of one model's table."""
    names = engines_of(result, model)
    peers = [n for n in names if n != "spyre"]
    head = ["tokens/s: median (range)", *names, "of the limit", "ratio to the best peer"]
    rows = []
    for row in figures.rows_of(result):
        if row["model"] != model:
            continue
        ratio = f"{row['ratio']:.2f} ({row['best_peer']})" if row["ratio"] and peers else "-"
        wanted = result["models"][model].get("samples_wanted", 1)
        rows.append([what(row), *(cell(row, n, wanted) for n in names), limit_cell(row), ratio])
    return head, rows


def limits_line(result, model):
    """What the machine did around the samples that count."""
    samples = [s for s in result["samples"] if s["model"] == model and not s["thrown_away"]]
    values = {"gflops": [], "gbps": []}
    for s in samples:
        for key in values:
            values[key] += [s[when][key] for when in ("limits_before", "limits_after") if s[when].get(key) is not None]
    if not values["gbps"]:
        return "no meters on this machine"
    peak, stream = figures.summary(values["gflops"]), figures.summary(values["gbps"])
    instruction = samples[0]["limits_before"].get("instruction")
    return (f"limits beside the samples: {instruction} {peak['median']:.0f} GFLOP/s ({peak['low']:.0f}-{peak['high']:.0f}), "
            f"stream {stream['median']:.1f} GB/s ({stream['low']:.1f}-{stream['high']:.1f})")  # fmt: skip


def thrown_away_line(result, model):
    thrown = [s for s in result["samples"] if s["model"] == model and s["thrown_away"]]
    kept = sum(s["model"] == model for s in result["samples"]) - len(thrown)
    if not thrown:
        return f"{kept} samples, none thrown away"
    return f"{kept} samples count, {len(thrown)} were thrown away (the streams around them differ by more than 10%)"


def engine_lines(result, model):
    lines = []
    for name in engines_of(result, model):
        facts = result["models"][model]["engines"][name]
        if "unavailable" in facts:
            lines.append((name, f"not measured: {facts['unavailable']}"))
            continue
        failed = f"; failed at {facts['failed']}" if "failed" in facts else ""
        lines.append((name, f"{facts['version']}; {facts['note']}; ready after {facts['load_seconds']:.1f} s{failed}"))
    return lines


def machine_line(result):
    m = result["machine"]
    return (f"{m['cpu']} ({m['family']}), {m['kind']}, {m['cores']} cores, {m['memory_bytes'] / 1e9:.0f} GB; "
            f"{result['threads']} threads; {result['date']}")  # fmt: skip


def sample_line(sample):
    values = ", ".join(f"{m} {figure(sample['figures'][m])}" for m in ("prefill", "decode") if sample["figures"].get(m))
    after = f" THROWN AWAY: {sample['thrown_away']}" if sample["thrown_away"] else ""
    stream = sample["limits_after"].get("gbps")
    beside = f" (stream {stream:.1f} GB/s)" if stream else ""
    return f"{sample['model']} {sample['case']:<8} {sample['engine']:<10} {values} tokens/s{beside}{after}"


def text(result):
    out = ["", machine_line(result)]
    for model in result["models"]:
        head, rows = rows_as_cells(result, model)
        widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
        out += ["", f"{model}: {limits_line(result, model)}", thrown_away_line(result, model), ""]
        out += ["  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip() for r in [head, *rows]]
        out += ["", *(f"  {name}: {facts}" for name, facts in engine_lines(result, model))]
    return "\n".join(out)


def markdown(result):
    out = [machine_line(result) + f". Command: `{result['command']}`"]
    for model in result["models"]:
        head, rows = rows_as_cells(result, model)
        out += ["", f"**{model}**: {limits_line(result, model)}; {thrown_away_line(result, model)}.", ""]
        out += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        out += ["| " + " | ".join(r) + " |" for r in rows]
        out += ["", *(f"- {name}: {facts}" for name, facts in engine_lines(result, model))]
    return "\n".join(out)
