#!/usr/bin/env python3
"""Makes stand-ins for the CUDA libraries that PyPI's torch for Linux links, so that it can be imported without them.

    cuda_stand_ins.py SITE_PACKAGES

Every function of theirs answers "no device" (100), so torch finds that there are no cards and runs on the CPU. For test
environments only: 20 KB of stubs in place of 4 GB. Needs gcc, nm and readelf.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
from collections import defaultdict

NO_DEVICE, SUCCESS = 100, 0
# The first prefix that fits says which library an unversioned symbol is taken from.
PREFIXES = (
    ("cudnn", "libcudnn"),
    ("nccl", "libnccl"),
    ("pncclRedOp", "libnccl"),
    ("nvshmem", "libnvshmem_host"),
    ("cuFile", "libcufile"),
    ("cusparseLt", "libcusparseLt"),
    ("curand", "libcurand"),
    ("cufft", "libcufft"),
    ("cupti", "libcupti"),
    ("cuda", "libcudart"),
    ("__cuda", "libcudart"),
)
# Called while torch is being loaded: registering kernels and reading versions must not look like failures.
SUCCEEDS = re.compile(r"cudaGetLastError|cudaPeekAtLastError|__cuda\w*|\w*GetVersion|cupti\w*")
RETURNS_TEXT = re.compile(r"\w*(Err(or)?(String|Name)|StatusString|StatusName|GetLastError)")


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def torch_libraries(site_packages):
    return [path for path in (site_packages / "torch" / "lib").glob("*.so*") if path.is_file()]


def missing_libraries(libraries):
    """Sonames that torch's libraries need and NVIDIA's packages would bring; libcuda.so.1 is loaded when it is there."""
    needed = {name for path in libraries for name in re.findall(r"NEEDED.*\[(.*)\]", output_of("readelf", "-dW", path))}
    ours = {path.name for path in libraries}
    return sorted(n for n in needed - ours if re.match(r"lib(cu|nccl|nvrtc|nvshmem)", n) and n != "libcuda.so.1")


def symbols(libraries):
    """(undefined, defined): sets of (name, version), version "" where there is none."""
    undefined, defined = set(), set()
    for path in libraries:
        for line in output_of("nm", "-D", "--with-symbol-versions", path).splitlines():
            *_, kind, symbol = line.split()
            name, _, version = symbol.partition("@")
            (undefined if kind == "U" else defined).add((name, version.lstrip("@")))
    return undefined, defined


def deal_out(undefined, defined, sonames):
    """soname -> version -> names."""
    by_stem = {soname.split(".")[0]: soname for soname in sonames}
    at_home = {name for name, _ in defined}
    dealt = {soname: defaultdict(set) for soname in sonames}
    for name, version in undefined:
        if version in dealt:
            dealt[version][version].add(name)
        elif version == "NVSHMEM":
            dealt[by_stem["libnvshmem_host"]][version].add(name)
        elif not version and name not in at_home:
            stem = next((stem for prefix, stem in PREFIXES if name.startswith(prefix)), None)
            if stem in by_stem:
                dealt[by_stem[stem]][""].add(name)
    return dealt


def function(name):
    if SUCCEEDS.fullmatch(name):
        return f"long {name}(void) {{ return {SUCCESS}; }}"
    if RETURNS_TEXT.fullmatch(name):
        return f'const char* {name}(void) {{ return "stand-in without a device"; }}'
    return f"long {name}(void) {{ return {NO_DEVICE}; }}"


def build(soname, versions, target):
    with tempfile.TemporaryDirectory() as folder:
        source, script = pathlib.Path(folder, "stubs.c"), pathlib.Path(folder, "versions.map")
        names = sorted(name for group in versions.values() for name in group)
        source.write_text("\n".join(map(function, names)) + "\nint stand_in;\n")
        options = []
        named = {version: group for version, group in versions.items() if version}
        if named:
            nodes = ("%s { %s; };" % (version, "; ".join(sorted(group))) for version, group in named.items())
            script.write_text("\n".join(nodes) + "\n")
            options = [f"-Wl,--version-script,{script}"]
        output_of(
            "gcc",
            "-w",
            "-fno-builtin",
            "-shared",
            "-fPIC",
            f"-Wl,-soname,{soname}",
            *options,
            "-o",
            target / soname,
            source,
        )
    print(f"{soname}: {len(names)} functions")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    site_packages = pathlib.Path(sys.argv[1]).resolve()
    libraries = torch_libraries(site_packages)
    if not libraries:
        sys.exit(f"there is no torch in {site_packages}")
    target = site_packages / "nvidia" / "cu13" / "lib"  # where torch looks
    target.mkdir(parents=True, exist_ok=True)
    for soname, versions in deal_out(*symbols(libraries), missing_libraries(libraries)).items():
        build(soname, versions, target)


if __name__ == "__main__":
    main()
