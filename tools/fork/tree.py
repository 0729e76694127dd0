# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A tree that holds vLLM, and the fork laid over it or taken off again.

A tree is an installed vLLM or an unpacked wheel (with its ``.dist-info``), or a
source checkout or an unpacked source distribution. What a file was before is
kept in one archive beside the tree's metadata, so that taking the fork off gives
every byte back, and laying it again starts from the base.
"""

import base64
import csv
import difflib
import hashlib
import io
import json
import os
import re
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from tools.fork import engine
from tools.fork.base import (
    ROOT,
    Base,
    checked_hashes,
    find_base,
    module_range,
    sha256,
)
from tools.fork.errors import ForkError, UnknownBase
from tools.fork.planner import in_range

ORIGINALS = "fork-originals.zip"
_MANIFEST = "manifest.json"
_EXTRAS = ("tests", "docs", "benchmarks", "examples", "tools/reasoning_exits.py")
# What tests the fork as such, or compares it with its base.
_SKIPPED_EXTRAS = (
    "tests/fork/",
    "benchmarks/kernels/benchmark_cpu_thinking_budget.py",
    "benchmarks/kernels/benchmark_reasoning_limits_host.py",
)


@dataclass(frozen=True)
class Change:
    """One file of the fork in a tree.

    Attributes:
        path: where it is, relative to the tree.
        kind: ``edit``, ``replace``, ``add`` or ``append``.
        base: its content without the fork, None where it has no such file.
        content: its content with the fork.
        current: what is there now.

    """

    path: str
    kind: str
    base: bytes | None
    content: bytes
    current: bytes | None

    @property
    def applied(self) -> bool:
        """Whether the tree holds the fork's content already."""
        return self.current == self.content

    @property
    def added(self) -> int:
        """How many lines the fork adds."""
        return self._marked("+")

    @property
    def removed(self) -> int:
        """How many lines the fork removes."""
        return self._marked("-")

    def _marked(self, mark: str) -> int:
        hunks = self.diff().partition("\n@@")[2]
        return sum(line.startswith(mark) for line in hunks.splitlines())

    def diff(self) -> str:
        """The unified diff from the base, as git writes it."""
        head = f"diff --git a/{self.path} b/{self.path}\n"
        if self.base is None:
            head += "new file mode 100644\n"
        old = "/dev/null" if self.base is None else f"a/{self.path}"
        lines = difflib.unified_diff(
            (self.base or b"").decode().splitlines(keepends=True),
            self.content.decode().splitlines(keepends=True),
            old,
            f"b/{self.path}",
        )
        ended = (
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in lines
        )
        return head + "".join(ended)


class Fork:
    """The fork's own files in a checkout of it."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root

    def modules(self, version: str | None = None) -> Iterator[tuple[str, Path]]:
        """Target paths under ``vllm/`` with the file that makes them.

        Args:
            version: leave out what does not hold on this base.

        """
        for source in sorted(self.root.glob("vllm/**/*.py")):
            name = source.relative_to(self.root).as_posix()
            path = name.replace(".edit.py", ".py")
            if version is None:
                holds = True
            elif path != name:
                edit = source.read_text(encoding="utf-8")
                holds = engine.holds(edit, path=name, version=version)
            else:
                holds = in_range(version, **module_range(path))
            if holds:
                yield path, source

    def extras(self) -> Iterator[tuple[str, Path]]:
        """Tests, docs, benchmarks and examples, for a source checkout."""
        for extra in _EXTRAS:
            found = self.root / extra
            for path in [found] if found.is_file() else sorted(found.rglob("*")):
                name = path.relative_to(self.root).as_posix()
                if (
                    path.is_file()
                    and "__pycache__" not in path.parts
                    and not name.startswith(_SKIPPED_EXTRAS)
                ):
                    yield name, path


class Tree:
    """A tree that holds vLLM.

    Args:
        path: the tree, or the ``vllm`` package in it; the installed vLLM of the
            running environment if None.
        version: the vLLM version of a source checkout that does not say it.
        fork: the fork.
        known: whether its version must be a known base.

    Raises:
        ForkError: there is no vLLM there.
        UnknownBase: the fork was never checked against its version.

    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        version: str | None = None,
        fork: Fork | None = None,
        known: bool = True,
    ) -> None:
        path = _installed() if path is None else path.resolve()
        self.root = path.parent if path.joinpath("__init__.py").is_file() else path
        if not self.root.joinpath("vllm", "__init__.py").is_file():
            raise ForkError(f"{path} holds no vllm package")
        self.fork = fork or Fork()
        self.dist_info = _find_dist_info(self.root)
        self.base = self._find_base(version, known)

    def _find_base(self, version: str | None, known: bool) -> Base:
        stated = ("vllm", version) if version is not None else self._stated()
        try:
            return find_base(*stated)
        except UnknownBase:
            if known:
                raise
            name, version = stated
            return Base(name, version.partition("+")[0], device="")

    def _stated(self) -> tuple[str, str]:
        """The name and version that the tree's metadata states."""
        for info in (self.dist_info, self.root):
            for name in ("METADATA", "PKG-INFO"):
                if info is not None and info.joinpath(name).is_file():
                    text = info.joinpath(name).read_text(encoding="utf-8")
                    found = dict(
                        re.findall(r"^(Name|Version): (.+)$", text, re.MULTILINE)
                    )
                    return found["Name"], found["Version"]
        raise ForkError(
            f"{self.root} does not say its version; give it with --base, for example "
            f"--base 0.33.0"
        )

    @property
    def archive(self) -> Path:
        """Where the originals are kept once the fork is laid over the tree."""
        if self.dist_info is not None:
            return self.dist_info / ORIGINALS
        return self.root / f".{ORIGINALS}"

    @cached_property
    def _originals(self) -> "Originals | None":
        return Originals.read(self.archive) if self.archive.is_file() else None

    def _current(self, path: str) -> bytes | None:
        file = self.root / path
        return file.read_bytes() if file.is_file() else None

    def base_content(self, path: str) -> bytes | None:
        """What a file was without the fork, None where there was none."""
        kept = self._originals
        if kept is not None and path in kept.files:
            return kept.files[path]
        return self._current(path)

    def changes(self, *, extras: bool = False) -> list[Change]:
        """Every file of the fork as it stands in this tree.

        Raises:
            EditError: an anchor does not hold.
            UnknownBase: a replaced module is not the one that was checked.

        """
        if extras and self.dist_info is not None:
            raise ForkError(
                "tests, docs, benchmarks and examples go into a source checkout only"
            )
        found = [self._module(*item) for item in self.fork.modules(self.base.version)]
        if extras:
            found += [
                self._extra(path, source)
                for path, source in self.fork.extras()
                if in_range(self.base.version, **module_range(path))
            ]
        return found

    def _module(self, path: str, source: Path) -> Change:
        base = self.base_content(path)
        ours = source.read_bytes()
        if source.name.endswith(".edit.py"):
            name = source.relative_to(self.fork.root).as_posix()
            if base is None:
                raise ForkError(f"{name}: {self.base} has no module {path}")
            text = engine.apply(
                ours.decode(),
                base.decode(),
                path=name,
                base=str(self.base),
                version=self.base.version,
            )
            return Change(path, "edit", base, text.encode(), self._current(path))
        if base is None:
            return Change(path, "add", None, ours, self._current(path))
        checked = checked_hashes(path)
        if base != ours and checked.get(str(self.base)) != sha256(base):
            raise UnknownBase(
                f"{path}: the fork replaces this module, and {self.base}'s was never "
                f"compared with it (compared: {', '.join(checked) or 'none'}). Compare "
                f"them, then record it with 'python -m tools.fork record {self.root}'."
            )
        return Change(path, "replace", base, ours, self._current(path))

    def _extra(self, path: str, source: Path) -> Change:
        base, ours = self.base_content(path), source.read_bytes()
        if base is None or base == ours:
            # The same in both, such as an empty `__init__.py`, stays the base's.
            return Change(path, "add", base, ours, self._current(path))
        if source.suffix != ".md":
            raise ForkError(f"{path} exists in {self.base} too; give ours its own name")
        content = base if ours in base else base.rstrip(b"\n") + b"\n\n" + ours
        return Change(path, "append", base, content, self._current(path))

    def replaced(self) -> dict[str, str]:
        """The modules the fork replaces whole, with the base's SHA-256."""
        hashes = {}
        for path, source in self.fork.modules(self.base.version):
            base = self.base_content(path)
            if base is not None and not source.name.endswith(".edit.py"):
                hashes[path] = sha256(base)
        return hashes

    def apply(self, *, extras: bool = False, force: bool = False) -> list[Change]:
        """Lay the fork over the tree.

        Everything is computed before anything is written. Files that an earlier
        state of the fork changed and this one does not are put back.

        Args:
            extras: tests, docs, benchmarks and examples too (source checkouts).
            force: overwrite files that were changed since the fork was laid.

        Returns:
            The fork's files, as they were found.

        """
        changes = self.changes(extras=extras)
        kept = self._originals
        stale = kept.files.keys() - {c.path for c in changes} if kept else set()
        if all(c.applied for c in changes) and not stale:
            return changes
        if kept is not None and not force:
            self._refuse_touched(kept)
        written = {c.path: c.content for c in changes}
        files: dict[str, bytes | None] = {c.path: c.base for c in changes}
        outcome: dict[str, bytes | None] = {p: kept.files[p] for p in stale if kept}
        outcome |= written
        record = self._record()
        originals = Originals(
            files, {p: sha256(content) for p, content in written.items()}, record
        )
        archive = originals.write()
        updates = {**outcome, self._relative(self.archive): archive}
        if record is not None and self.dist_info is not None:
            listed = self._relative(self.dist_info / "RECORD")
            updates[listed] = update_record(record, updates)
        self._write(updates)
        return changes

    def revert(self, *, force: bool = False) -> list[str]:
        """Take the fork off the tree.

        Args:
            force: overwrite files that were changed since the fork was laid.

        Returns:
            The files put back or removed.

        Raises:
            ForkError: the fork is not laid over this tree.

        """
        kept = self._originals
        if kept is None:
            raise ForkError(f"{self.root}: the fork was not laid over this vLLM")
        if not force:
            self._refuse_touched(kept)
        updates: dict[str, bytes | None] = dict(kept.files)
        record = self._record()
        if record is not None and self.dist_info is not None:
            updates[self._relative(self.dist_info / "RECORD")] = record
        self._write({**updates, self._relative(self.archive): None})
        return sorted(kept.files)

    def _record(self) -> bytes | None:
        """The RECORD of the tree without the fork."""
        if self.dist_info is None:
            return None
        kept = self._originals
        record = (self.dist_info / "RECORD").read_bytes()
        if kept is None:
            return record
        if kept.record is not None:
            return kept.record
        archive = self._relative(self.archive)
        return update_record(record, {**kept.files, archive: None})

    def _refuse_touched(self, kept: "Originals") -> None:
        for path, digest in kept.applied.items():
            current = self._current(path)
            if current is None or sha256(current) not in (
                digest,
                sha256(kept.files[path] or b""),
            ):
                raise ForkError(
                    f"{self.root / path} was changed since the fork was laid over it; "
                    f"keep what you need of it, then run this again with --force"
                )

    def _relative(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _write(self, updates: dict[str, bytes | None]) -> None:
        """Write or remove files; each is replaced as a whole, links stay intact."""
        for path, content in updates.items():
            file = self.root / path
            if content is None:
                file.unlink(missing_ok=True)
                if file.parent != self.root and not any(file.parent.iterdir()):
                    file.parent.rmdir()
                continue
            if content == self._current(path):
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            mode = file.stat().st_mode if file.exists() else 0o644
            with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as scratch:
                scratch.write(content)
            os.chmod(scratch.name, mode & 0o777)
            os.replace(scratch.name, file)
        self.__dict__.pop("_originals", None)


@dataclass(frozen=True)
class Originals:
    """What a tree held before the fork was laid over it.

    Attributes:
        files: path to content, None where the fork added the file.
        applied: path to the SHA-256 of the fork's content.
        record: the distribution's RECORD, None where it can be derived.

    """

    files: dict[str, bytes | None]
    applied: dict[str, str]
    record: bytes | None = None

    @classmethod
    def read(cls, path: Path) -> "Originals":
        """Read the archive."""
        with zipfile.ZipFile(path) as archive:
            manifest = json.loads(archive.read(_MANIFEST))
            names = set(archive.namelist())
            return cls(
                {
                    p: archive.read(f"files/{p}") if f"files/{p}" in names else None
                    for p in manifest
                },
                manifest,
                archive.read("RECORD") if "RECORD" in names else None,
            )

    def write(self) -> bytes:
        """The archive, the same bytes for the same content."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            entries: dict[str, bytes] = {
                _MANIFEST: json.dumps(self.applied, indent=1, sort_keys=True).encode()
            }
            entries |= {f"files/{p}": c for p, c in self.files.items() if c is not None}
            if self.record is not None:
                entries["RECORD"] = self.record
            for name, content in sorted(entries.items()):
                info = zipfile.ZipInfo(name)
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, content)
        return buffer.getvalue()


def record_row(path: str, content: bytes) -> list[str]:
    """A file's row in RECORD: path, hash, size in bytes."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
    return [path, f"sha256={digest.decode()}", str(len(content))]


def update_record(record: bytes, updates: dict[str, bytes | None]) -> bytes:
    """RECORD after files were written (or removed, None); new rows come last."""
    text = record.decode()
    ending = "\r\n" if "\r\n" in text else "\n"
    rows, seen = [], set()
    for row in csv.reader(io.StringIO(text)):
        path = row[0] if row else ""
        seen.add(path)
        if path not in updates:
            rows.append(row)
        elif (content := updates[path]) is not None:
            rows.append(record_row(path, content))
    rows += [
        record_row(path, content)
        for path, content in updates.items()
        if path not in seen and content is not None
    ]
    out = io.StringIO()
    csv.writer(out, lineterminator=ending).writerows(rows)
    return out.getvalue().encode()


def _installed() -> Path:
    spec = find_spec("vllm")
    if spec is None or spec.origin is None:
        raise ForkError("vLLM is not installed in this environment; name a TREE")
    return Path(spec.origin).parent


def _find_dist_info(root: Path) -> Path | None:
    """The metadata directory of the distribution that owns ``vllm/``."""
    for record in sorted(root.glob("vllm*.dist-info/RECORD")):
        with record.open(encoding="utf-8", newline="") as rows:
            if any(row and row[0] == "vllm/__init__.py" for row in csv.reader(rows)):
                return record.parent
    return None
