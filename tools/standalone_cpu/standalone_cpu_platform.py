# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A platform plugin: this CPU as one for which there is no Triton.

On such CPUs vLLM runs its own model runner V2, whose operators stand in a library
beside this module.
"""

from pathlib import Path

import torch

from vllm.platforms.cpu import CpuPlatform
from vllm.platforms.interface import CpuArchEnum


class StandaloneCpuPlatform(CpuPlatform):
    """x86 under another name, so that vLLM asks for no Triton."""

    @classmethod
    def get_cpu_architecture(cls) -> CpuArchEnum:
        return CpuArchEnum.OTHER

    @classmethod
    def import_kernels(cls) -> None:
        super().import_kernels()
        torch.ops.load_library(Path(__file__).with_name("standalone_cpu_operators.so"))


def register() -> str:
    """Name the platform to vLLM."""
    return f"{__name__}.{StandaloneCpuPlatform.__qualname__}"
