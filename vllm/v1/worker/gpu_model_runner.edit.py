# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Async scheduling: a limit that is not due waits for no draft token.

The wait for it would undo what the input batch saves.

Goes when 0.33.0 is no longer a base: 0.34.0 has no model runner V1.
"""

from tools.fork.edits import and_condition, until

with until("0.34.0"):

    class GPUModelRunner:
        def _sample(self):
            with and_condition(tests="self._draft_token_req_ids"):
                self.input_batch.deferred_sampled_token_ids is None
