# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""`LLM(reasoning_config={...})` is read like the other configs.

A mapping has none of the methods and checks that the engine calls.

Goes when upstream reads a mapping there as it does for the configs beside it.
"""

from tools.fork.edits import after_statement


class EngineArgs:
    def __post_init__(self):
        with after_statement(tests="self.kernel_config"):
            if isinstance(self.reasoning_config, dict):
                self.reasoning_config = ReasoningConfig(**self.reasoning_config)
