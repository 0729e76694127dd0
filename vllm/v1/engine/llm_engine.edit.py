# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The output processor learns the reasoning markers."""

from tools.fork.edits import after_argument


class LLMEngine:
    def __init__(self):
        with after_argument("OutputProcessor", "stream_interval"):
            reasoning_config = self.vllm_config.reasoning_config
