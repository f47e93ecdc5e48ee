"""What kind of machine this is: figures are compared within a kind only."""

import os
import re


def kind_of(flags):
    """By the fastest instructions that kernels can use."""
    for flag, kind in (("amx_bf16", "AMX"), ("avx512_bf16", "AVX-512 with BF16"), ("avx512f", "AVX-512"),
                       ("avx2", "AVX2")):  # fmt: skip
        if flag in flags:
            return kind
    return "portable"


def read_cpuinfo(text):
    name = re.search(r"^model name\s*:\s*(.*)$", text, re.M)
    flags = re.search(r"^flags\s*:\s*(.*)$", text, re.M)
    family = re.search(r"^cpu family\s*:\s*(\d+)$", text, re.M)
    model = re.search(r"^model\s*:\s*(\d+)$", text, re.M)
    return {
        "cpu": name[1].strip() if name else "unknown",
        "family": f"{family[1]}/{model[1]}" if family and model else "",
        "kind": kind_of(set(flags[1].split()) if flags else set()),
    }


def memory_bytes():
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0


def facts():
    with open("/proc/cpuinfo") as file:
        out = read_cpuinfo(file.read())
    return {**out, "cores": len(os.sched_getaffinity(0)), "memory_bytes": memory_bytes()}
