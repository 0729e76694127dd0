# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The default of the answer reserve is settled once the markers are known.

Whether a default can hold depends on the tokenizer and the parser, known here.

Goes when upstream has `reasoning_answer_reserve`.
"""

from tools.fork.edits import before_statement


class VllmConfig:
    def __post_init__(self):
        with before_statement(calls="self._post_init_kv_transfer_config"):
            if self.model_config is not None:
                reasoning_config = self.reasoning_config or ReasoningConfig()
                reasoning_config.resolve_answer_reserve(self.model_config)
