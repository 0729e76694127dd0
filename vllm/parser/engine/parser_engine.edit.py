# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A complete output begins where the prompt ends, as a stream does.

A parser whose grammar begins in content read a block that the prompt left open as
content, in whole replies alone.

Goes when upstream reads whole replies with their prompt.
"""

from tools.fork.edits import at_end, before_def


class ParserEngine:
    with before_def("__init__"):
        # Of an output that may begin in reasoning.
        _prompt_token_ids: Sequence[int] = ()

    def _reset(self):
        with at_end():
            if initial_state is None:
                self.adjust_initial_state_from_prompt(self._prompt_token_ids)
