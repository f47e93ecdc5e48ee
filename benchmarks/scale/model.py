"""The model of a step: what it should take on so many cores, from what was measured on one and two. No measuring here.

    step(n) = max(FLOPs / (n P e), bytes / S(n)) + layers (d + b s(n)) + h

    P     peak of one thread (inline assembly), e the share of it that the GEMM reaches here at many rows
    S(n)  stream of n threads: min(n S(1), S_all), where S_all is the memory of the machine that is asked about
    d     a layer's fixed cost without others to wait for: the slope of step time over depth of a tiny model, 1 thread
    b     meetings of the threads per layer
    s(n)  a meeting of n threads: s(2) n / 2, as all of them count on one cache line; s(2) from the same slope, 2 threads
    h     what a step costs apart from layers: the time of the tiny model at depth 0
"""

import statistics

BARRIERS_PER_LAYER = 5


def line(points):
    """(intercept, slope) of least squares through (x, y) pairs."""
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    mx, my = statistics.fmean(xs), statistics.fmean(ys)
    spread = sum((x - mx) ** 2 for x in xs)
    slope = sum((x - mx) * (y - my) for x, y in points) / spread if spread else 0.0
    return my - slope * mx, slope


def fixed_costs(tiny_1_thread, tiny_2_threads):
    """d, s(2) and h, in seconds, from (layers, step seconds) of a model too small for its products to matter."""
    h, d = line(tiny_1_thread)
    _, with_meetings = line(tiny_2_threads)
    return {"h": max(h, 0.0), "d": max(d, 0.0), "s2": max((with_meetings - d) / BARRIERS_PER_LAYER, 0.0)}


def stream(cores, one, whole):
    return min(cores * one, whole)


def step_seconds(cores, flops, bytes_, layers, costs, peak_1, efficiency, stream_1, stream_all):
    """GFLOP/s and GB/s in, seconds out. One core meets nobody."""
    products = flops / (cores * peak_1 * 1e9 * efficiency)
    memory = bytes_ / (stream(cores, stream_1, stream_all) * 1e9)
    meeting = costs["s2"] * cores / 2 if cores > 1 else 0.0
    return max(products, memory) + layers * (costs["d"] + BARRIERS_PER_LAYER * meeting) + costs["h"]
