# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Builds the ``vllm`` wheel of the fork from a released vLLM.

Compiled parts and untouched modules come from the base, the rest from here. The
environment chooses the base, with vLLM's own variables:

* ``VLLM_TARGET_DEVICE``: ``cpu`` or ``cuda`` (default: cuda where an NVIDIA driver
  is present, else cpu);
* ``VLLM_PRECOMPILED_WHEEL_LOCATION``: a base wheel on this machine instead.
"""

import sys
import tempfile
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from tools.fork.build import (  # noqa: E402
    BaseWheel,
    build_wheel,
    entry_points,
    requirements,
)
from tools.fork.errors import ForkError  # noqa: E402

# Metadata made on the way stays out of the checkout's root, where it would pass
# for an installed distribution.
SCRATCH = ROOT / "build"
SCRATCH.mkdir(exist_ok=True)

try:
    WHEEL = BaseWheel.locate()
except ForkError as e:
    sys.exit(f"error: {e}")
METADATA = WHEEL.metadata()
REQUIREMENTS = requirements(METADATA, WHEEL.base.device)


class ForkWheel(bdist_wheel):
    """Lays the fork over the base wheel instead of collecting files."""

    def run(self) -> None:
        """Write the wheel to the distribution folder."""
        version = self.distribution.get_version()
        with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
            dist_info = self.distribution.get_command_obj("dist_info")
            dist_info.output_dir = scratch
            dist_info.ensure_finalized()
            dist_info.run()
            made = Path(dist_info.dist_info_dir)
            files = {
                path.relative_to(made).as_posix(): path.read_bytes()
                for path in sorted(made.rglob("*"))
                if path.is_file()
            }
        try:
            wheel = build_wheel(WHEEL, version, files, Path(self.dist_dir))
        except ForkError as e:
            sys.exit(f"error: {e}")
        self.distribution.dist_files.append(("bdist_wheel", "any", str(wheel)))


setup(
    version=WHEEL.base.fork_version,
    python_requires=METADATA["Requires-Python"],
    classifiers=METADATA.get_all("Classifier") or [],
    install_requires=REQUIREMENTS.always,
    extras_require=REQUIREMENTS.extras,
    entry_points=entry_points(WHEEL.path),
    cmdclass={"bdist_wheel": ForkWheel},
    options={"egg_info": {"egg_base": str(SCRATCH)}},
)
