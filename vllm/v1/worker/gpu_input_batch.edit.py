# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Async scheduling: a limit that is not due waits for no sampled token.

The token ids of the last step are still on their way from the device when the next step
samples. Where only the limits of reasoning blocks read them and none is due, they are
taken a step later, when they have arrived.

Goes when 0.33.0 is no longer a base: 0.34.0 has no model runner V1.
"""

from tools.fork.edits import after_def, after_statement, at_start, until

with until("0.34.0"):

    class InputBatch:
        def __init__(self):
            with after_statement(assigns="self.async_copy_ready_event"):
                # Sampled ids that no one had to wait for yet: the ids, the event of
                # their copy, and the row of each request.
                self.deferred_sampled_token_ids: (
                    tuple[torch.Tensor, torch.Event, dict[str, int]] | None
                ) = None

        def remove_request(self):
            with after_statement(tests="self.prev_req_id_to_index"):
                if self.deferred_sampled_token_ids is not None:
                    self.deferred_sampled_token_ids[2].pop(req_id, None)

        with after_def("set_async_sampled_token_ids"):

            def _take_deferred_sampled_token_ids(self) -> None:
                """Put the ids deferred in the last step in their place."""
                deferred = self.deferred_sampled_token_ids
                self.deferred_sampled_token_ids = None
                output_token_ids = self.sampling_metadata.output_token_ids
                # Without outputs no request is left that needs them.
                if deferred is None or not output_token_ids:
                    return
                sampled_token_ids, copy_ready_event, req_id_to_row = deferred
                copy_ready_event.synchronize()
                rows = sampled_token_ids.tolist()
                for req_id, output in zip(self.req_ids, output_token_ids):
                    if (row := req_id_to_row.get(req_id)) is None:
                        continue
                    # The placeholders of the last step's tokens come after theirs.
                    begin = len(output)
                    while begin > 0 and output[begin - 1] == -1:
                        begin -= 1
                    sampled = [token for token in rows[row] if token != -1]
                    del sampled[len(output) - begin :]
                    output[begin : begin + len(sampled)] = sampled

            def _defer_sampled_token_ids(self) -> bool:
                """Leave the last step's ids for the next step if none is needed now."""
                holder = self.thinking_budget_state_holder
                if (
                    holder is None
                    or self.sampled_token_ids_cpu is None
                    or not self.no_penalties
                    or self.bad_words_token_ids
                    or self.logitsprocs_need_output_token_ids
                    or holder.is_due(self.sampling_metadata.output_token_ids)
                ):
                    return False
                assert self.async_copy_ready_event is not None
                self.deferred_sampled_token_ids = (
                    self.sampled_token_ids_cpu,
                    self.async_copy_ready_event,
                    dict(self.prev_req_id_to_index or {}),
                )
                return True

        def update_async_output_token_ids(self):
            with at_start():
                self._take_deferred_sampled_token_ids()
                if self._defer_sampled_token_ids():
                    return
