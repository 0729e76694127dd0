# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Reasoning without a start marker is counted, as it is returned.

Where the template has opened the block, its tokens were reported as none.

Goes when upstream counts what it returns as reasoning.
"""

from tools.fork.edits import at_start


class BaseThinkingReasoningParser:
    def count_reasoning_tokens(self):
        with at_start():
            # Without a start marker, reasoning begins with the output.
            first_end = [*token_ids, self.end_token_id].index(self.end_token_id)
            if self.start_token_id not in token_ids[:first_end]:
                token_ids = [self.start_token_id, *token_ids]
