# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A reserve in the wrong place of a request body is refused, not ignored.

Protocols ignore a field that they do not know, and the client would never learn of it.

Goes when upstream refuses unknown fields of a request.
"""

from tools.fork.edits import after_def

with after_def("validate_cache_salt"):

    def refuse_misplaced_answer_reserve(
        data: dict[str, Any], parent: str | None = None
    ) -> None:
        """Refuse ``reasoning_answer_reserve`` where it would not be read.

        Args:
            data: The request body.
            parent: The field it belongs in; None for the top level.

        Raises:
            VLLMValidationError: If another place of the body holds it.

        """
        name = "reasoning_answer_reserve"
        misplaced = [
            (field, value[name])
            for field, value in data.items()
            if isinstance(value, dict)
            and name in value
            # Metadata is the client's own and says nothing about sampling.
            and field not in (parent, "metadata")
        ]
        if parent is not None and name in data:
            misplaced.append(("the top level of the request", data[name]))
        for place, value in misplaced:
            home = f"in {parent}" if parent else "at the top level of the request"
            raise VLLMValidationError(
                f"reasoning_answer_reserve is not read in {place}. Put it {home}.",
                parameter=name,
                value=value,
            )
