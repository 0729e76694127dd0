# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The output processor learns the reasoning markers.

What closed a block is derived from an output's tokens, for which it needs them.

Goes when upstream's outputs say what closed a reasoning block.
"""

from tools.fork.edits import after_argument, after_import

with after_import("vllm.v1.metrics.stats"):
    from vllm.v1.sample.reasoning_limits import ReasoningMarkers


class LLMEngine:
    def __init__(self):
        with after_argument("OutputProcessor", "stream_interval"):
            reasoning_markers = ReasoningMarkers.from_config(
                self.vllm_config.reasoning_config
            )
