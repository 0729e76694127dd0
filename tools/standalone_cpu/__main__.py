# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Builds an environment in which a vLLM runs that has no wheel for CPU.

``python -m tools.standalone_cpu VERSION ENVIRONMENT`` takes vLLM's Python from its
source distribution, the compiled parts from the wheel for CPU of the base that the
fork is built on, and compiles the few operators that the CPU model runner V2 wants
beside them. All else comes from the environment that runs this, but for what the
version requires and is not there.
"""

import argparse
import csv
import shutil
import subprocess
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

import torch

from tools.fork.base import base_for, fetch_sdist, fetch_wheel

HERE = Path(__file__).parent
PLUGIN = "standalone_cpu_platform"

# Upstream's definition for CPUs on which this model runner runs, and this CPU's
# vector instructions, by which the sources choose their types.
_COMPILE = (
    *("g++", "-O2", "-std=c++20", "-fopenmp", "-fPIC", "-shared", "-march=native"),
    "-DVLLM_STANDALONE_CPU_MRV2",
)


def build(version: str, environment: Path) -> Path:
    """Build the environment anew.

    Args:
        version: of vLLM.
        environment: its folder; what is there is replaced.

    Returns:
        Its site-packages.

    """
    venv.create(environment, clear=True, symlinks=True, with_pip=True)
    site_packages = Path(
        sysconfig.get_path("purelib", "venv", {"base": str(environment)})
    )
    # Behind this environment's own vLLM come the packages of the one that runs this.
    installed = sysconfig.get_path("purelib")
    site_packages.joinpath("installed.pth").write_text(f"{installed}\n")
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(fetch_sdist(version)) as sdist:
            sdist.extractall(scratch, filter="data")
        source = Path(scratch, f"vllm-{version}")
        install = [
            str(environment / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
        ]
        required = source / "requirements" / "common.txt"
        subprocess.run([*install, "-r", str(required)], check=True)
        shutil.move(source / "vllm", site_packages)
        _write_metadata(site_packages, version, source / "vllm.egg-info")
        _compile(source / "csrc", site_packages / "standalone_cpu_operators.so")
    with zipfile.ZipFile(fetch_wheel(base_for("cpu"))) as wheel:
        wheel.extractall(
            site_packages, [name for name in wheel.namelist() if name.endswith(".so")]
        )
    shutil.copy(HERE / f"{PLUGIN}.py", site_packages)
    info = site_packages / f"{PLUGIN}-1.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {PLUGIN}\nVersion: 1\n"
    )
    info.joinpath("entry_points.txt").write_text(
        f"[vllm.platform_plugins]\nstandalone_cpu = {PLUGIN}:register\n"
    )
    return site_packages


def _write_metadata(site_packages: Path, version: str, egg_info: Path) -> None:
    """The metadata of vLLM as installed, with upstream's label of a build for CPU."""
    labelled = f"{version}+cpu"
    info = site_packages / f"vllm-{labelled}.dist-info"
    info.mkdir()
    metadata = egg_info.joinpath("PKG-INFO").read_text(encoding="utf-8")
    info.joinpath("METADATA").write_text(
        metadata.replace(f"\nVersion: {version}\n", f"\nVersion: {labelled}\n", 1),
        encoding="utf-8",
    )
    shutil.copy(egg_info / "entry_points.txt", info)
    with info.joinpath("RECORD").open("w", encoding="utf-8", newline="") as record:
        csv.writer(record, lineterminator="\n").writerows(
            (path.relative_to(site_packages).as_posix(), "", "")
            for folder in (site_packages / "vllm", info)
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        )


def _compile(csrc: Path, library: Path) -> None:
    pytorch = Path(torch.__file__).parent
    include = pytorch / "include"
    folders = (include, include / "torch/csrc/api/include", csrc, csrc / "cpu")
    subprocess.run(
        [
            *_COMPILE,
            *(f"-I{folder}" for folder in folders),
            str(HERE / "operators.cpp"),
            *("-o", str(library)),
            *(f"-L{pytorch / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10"),
        ],
        check=True,
    )


def main() -> None:
    """Build the environment that the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.standalone_cpu", description=__doc__
    )
    parser.add_argument("version", metavar="VERSION")
    parser.add_argument("environment", metavar="ENVIRONMENT", type=Path)
    args = parser.parse_args()
    print(build(args.version, args.environment.resolve()))


if __name__ == "__main__":
    main()
