# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The default of the answer reserve is checked once the markers are known."""

from tools.fork.edits import after_statement


class VllmConfig:
    def __post_init__(self):
        with after_statement(tests="self.reasoning_config.enabled"):
            self.reasoning_config.verify_answer_reserve()
