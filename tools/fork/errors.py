# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Everything the fork tools refuse, each with its own name."""


class ForkError(Exception):
    """A tree, a base or an edit that the fork cannot be laid over."""


class EditError(ForkError):
    """An edit file that says something the edit language does not have."""


class MissingAnchor(EditError):
    """The anchor is not in the target."""


class AmbiguousAnchor(EditError):
    """The anchor is in the target more than once."""


class Conflict(EditError):
    """What the edit adds is there already, with other content."""


class UnknownBase(ForkError):
    """The base version, or a module the fork replaces, was never checked."""
