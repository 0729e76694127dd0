# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""vLLM's CPU platform, taken for one that has no Triton.

Copied into the environment of ``tools.standalone_cpu``, where vLLM loads it as a
platform plugin.
"""

from pathlib import Path

import torch

from vllm.platforms.cpu import CpuPlatform
from vllm.platforms.interface import CpuArchEnum

OPERATORS = Path(__file__).with_name("operators.so")


class StandaloneCpuPlatform(CpuPlatform):
    """A CPU whose model runner needs no Triton."""

    @classmethod
    def get_cpu_architecture(cls) -> CpuArchEnum:
        """Any but x86, for which vLLM asks for Triton."""
        return CpuArchEnum.OTHER

    @classmethod
    def import_kernels(cls) -> None:
        """Load the operators that the compiled parts lack as well."""
        super().import_kernels()
        torch.ops.load_library(OPERATORS)
