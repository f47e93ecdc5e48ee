"""From the times of tokens to figures: rates of a run, which samples count, medians, ratios. No measuring in here."""

import statistics

STREAM_TOLERANCE = 0.10  # a sample between two streams that differ by more says more of the machine than of the engine


def steady_rate(series):
    """Tokens per second of all requests together while each of them has its first token and none has ended.

    `series` has, for each request, (time, tokens so far) whenever tokens came. A token counts for the time after the
    one before it; what came at the first moment was being computed before. None when there is no such time.
    """
    begin = max(s[0][0] for s in series)
    end = min(s[-1][0] for s in series)
    if end <= begin:
        return None

    def tokens_until(s, moment):
        return max((n for time, n in s if time <= moment), default=0)

    return sum(tokens_until(s, end) - tokens_until(s, begin) for s in series) / (end - begin)


def figures_of_run(case, series):
    """{"prefill": tokens/s, "decode": tokens/s}, as far as the case asks; times are seconds from the start."""
    figures = {"first_token_seconds": min(s[0][0] for s in series), "seconds": max(s[-1][0] for s in series)}
    if "prefill" in case.metrics:
        figures["prefill"] = case.prompt / figures["first_token_seconds"]
    if "decode" in case.metrics:
        figures["decode"] = steady_rate(series)
    return figures


def complaint(before, after):
    """Why a sample between these two limits does not count; None when it does."""
    if not before or not after or before.get("gbps") is None or after.get("gbps") is None:
        return None  # no meters on this machine
    slow, fast = sorted((before["gbps"], after["gbps"]))
    if fast > slow * (1 + STREAM_TOLERANCE):
        return f"stream {before['gbps']:.1f} GB/s before, {after['gbps']:.1f} after"
    return None


def summary(values):
    """{"median", "low", "high", "count"} of a list that is not empty."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "count": len(values)}


def limit_seconds(work, case, metric, limits):
    """How long the case would take at the machine's limits: the larger of its bytes over the stream and its products
    over the peak. For a prefill to the first token; for a decode step of all requests at the mean context."""
    if metric == "prefill":
        flops = (case.prompt * work["body_flops_per_token"] + work["head_flops_per_row"]
                 + work["attention_flops_per_pair"] * case.prompt * (case.prompt + 1) / 2)  # fmt: skip
        return max(flops / limits["gflops"], work["weight_bytes_per_step"] / limits["gbps"]) * 1e-9
    context = case.prompt + case.output / 2
    bytes_ = work["weight_bytes_per_step"] + case.requests * (
        work["table_bytes_per_token"] + work["kv_bytes_per_token"] * context)  # fmt: skip
    flops = case.requests * (work["body_flops_per_token"] + work["head_flops_per_row"]
                             + work["attention_flops_per_pair"] * context)  # fmt: skip
    return max(bytes_ / limits["gbps"], flops / limits["gflops"]) * 1e-9


def limit_rate(work, case, metric, limits):
    """Tokens per second at the machine's limits; None without meters."""
    if not work or limits.get("gbps") is None:
        return None
    return (case.prompt if metric == "prefill" else case.requests) / limit_seconds(work, case, metric, limits)


def median_limits(look, looks=3):
    """Of a few looks at the machine, as one alone is at the mercy of a neighbour."""
    found = [look() for _ in range(looks)]
    out = dict(found[0])
    for key in ("gflops", "gbps"):
        if found[0].get(key) is not None:
            out[key] = statistics.median(f[key] for f in found)
    return out


def mean_limits(before, after):
    return {key: (before[key] + after[key]) / 2 if before.get(key) is not None else None for key in ("gflops", "gbps")}


def rows_of(result):
    """The table: one row per model, case and metric, in the order of the first sample of each.

    {"model", "case", "metric", "engines": {name: summary + "limit_ratio"}, "limit": median rate at the limits,
    "best_peer", "ratio": ours over the best peer, None without both}. Samples that were thrown away are left out.
    """
    import cases

    table = {}
    for sample in result["samples"]:
        if sample.get("thrown_away"):
            continue
        case = cases.ALL[sample["case"]]
        work = result["models"][sample["model"]].get("work")
        for metric in case.metrics:
            value = sample["figures"].get(metric)
            if value is None:
                continue
            key = (sample["model"], sample["case"], metric)
            row = table.setdefault(key, {"values": {}, "ratios": {}, "limits": []})
            row["values"].setdefault(sample["engine"], []).append(value)
            limits = mean_limits(sample["limits_before"], sample["limits_after"])
            limit = limit_rate(work, case, metric, limits)
            if limit:
                row["limits"].append(limit)
                row["ratios"].setdefault(sample["engine"], []).append(value / limit)
    return [finished_row(key, row) for key, row in table.items()]


def finished_row(key, row):
    engines = {name: summary(values) for name, values in row["values"].items()}
    for name, ratios in row["ratios"].items():
        engines[name]["limit_ratio"] = statistics.median(ratios)
    peers = {name: e["median"] for name, e in engines.items() if name != "spyre"}
    best = max(peers, key=peers.get) if peers else None
    ratio = engines["spyre"]["median"] / peers[best] if best and "spyre" in engines else None
    return {
        "model": key[0], "case": key[1], "metric": key[2], "engines": engines, "best_peer": best, "ratio": ratio,
        "limit": statistics.median(row["limits"]) if row["limits"] else None}  # fmt: skip
