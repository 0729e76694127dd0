# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Gemma 4: what follows a block that the prompt closed is not taken for reasoning.

An end marker in the first chunk made a block of all that came before it, so that a
continued answer was read differently by chunk.

Goes when upstream's repair of a missing start marker asks what the prompt closed.
"""

from tools.fork.edits import at_start, since


class Gemma4Parser:
    def _preprocess_feed(self):
        with since("0.34.0"), at_start():
            if self._prompt_closes_reasoning:
                return delta_text, delta_token_ids
