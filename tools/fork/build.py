# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Builds the fork's wheel from a base wheel (used by ``setup.py``).

Members that the fork does not touch are copied as they are compressed, so that a
build takes seconds where compressing them again takes minutes. The same base and
the same fork make the same bytes.
"""

import configparser
import copy
import csv
import io
import os
import re
import tempfile
import zipfile
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import BinaryIO

from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename
from tqdm import tqdm

from tools.fork.base import (
    Base,
    base_for,
    base_of_wheel,
    fetch_wheel,
    target_device,
    wheel_metadata,
)
from tools.fork.errors import ForkError
from tools.fork.tree import ORIGINALS, Fork, Originals, Tree, record_row, sha256

MULTIMODAL = ("torchvision", "torchaudio", "torchcodec")
"""On cpu these come with the extra ``multimodal`` instead of always: text models
do not need them, and their CPU builds are on PyTorch's own index only."""

_CHUNK = 1 << 20


@dataclass(frozen=True)
class BaseWheel:
    """The wheel a build starts from, and which known base it is."""

    path: Path
    base: Base

    @classmethod
    def locate(cls) -> "BaseWheel":
        """The wheel that ``VLLM_PRECOMPILED_WHEEL_LOCATION`` names, or the base's.

        Raises:
            ForkError: it cannot be had, or is no known base.

        """
        if location := os.environ.get("VLLM_PRECOMPILED_WHEEL_LOCATION"):
            path = Path(location).expanduser()
            if not path.is_file():
                raise ForkError(
                    f"VLLM_PRECOMPILED_WHEEL_LOCATION={location}: no such file; name a "
                    f"wheel on this machine"
                )
            return cls(path, base_of_wheel(path))
        base = base_for(target_device())
        return cls(fetch_wheel(base), base)

    def metadata(self) -> Message:
        """Its METADATA."""
        return wheel_metadata(self.path)


@dataclass(frozen=True)
class Requirements:
    """What the fork requires: always, and per extra."""

    always: list[str]
    extras: dict[str, list[str]]


def requirements(metadata: Message, device: str) -> Requirements:
    """The base's requirements, on cpu with two repairs.

    There ``torch`` loses its local label (``2.13.0+cpu``), which no package index
    but PyTorch's own serves and which a plain ``2.13.0`` admits; and what only
    multimodal models need moves to the extra ``multimodal``.

    Args:
        metadata: the base's METADATA.
        device: the base's device.

    """
    always: list[str] = []
    extras: dict[str, list[str]] = {
        name: [] for name in metadata.get_all("Provides-Extra") or []
    }
    for line in metadata.get_all("Requires-Dist") or []:
        requirement = Requirement(line)
        if device == "cpu" and requirement.name == "torch":
            line = re.sub(r"(==[\d.]+)\+\w+", r"\1", line)
        if match := re.search(r"""extra == ['"]([\w.-]+)['"]""", line):
            extras.setdefault(match[1], []).append(_without_extra(line))
        elif device == "cpu" and requirement.name in MULTIMODAL:
            extras.setdefault("multimodal", []).append(line)
        else:
            always.append(line)
    return Requirements(always, extras)


def _without_extra(line: str) -> str:
    """A requirement without the part of its marker that names the extra."""
    head, _, marker = line.partition(";")
    extra = r"""extra == ['"][\w.-]+['"]"""
    rest = re.sub(rf"\s+and\s+{extra}\s*$|^\s*{extra}\s*$", "", marker).strip()
    if "extra" in rest:
        raise ForkError(f"cannot take the extra out of the requirement {line!r}")
    return f"{head.strip()}; {rest}" if rest else head.strip()


def entry_points(wheel: Path) -> dict[str, list[str]]:
    """A wheel's entry points by group, as ``name = object``."""
    with zipfile.ZipFile(wheel) as archive:
        names = [
            n for n in archive.namelist() if n.endswith(".dist-info/entry_points.txt")
        ]
        parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        for name in names:
            parser.read_string(archive.read(name).decode())
    return {
        group: [f"{name} = {target}" for name, target in parser.items(group)]
        for group in parser.sections()
    }


def build_wheel(
    wheel: BaseWheel,
    version: str,
    dist_info: dict[str, bytes],
    target: Path,
    *,
    fork: Fork | None = None,
) -> Path:
    """Write the fork's wheel.

    Args:
        wheel: the wheel to start from.
        version: the fork's version.
        dist_info: name to content of its metadata files, less WHEEL and RECORD.
        target: the folder to write to.
        fork: the fork.

    Returns:
        The wheel written.

    Raises:
        ForkError: the fork cannot be laid over the base.

    """
    tags = parse_wheel_filename(wheel.path.name)[-1]
    stem = wheel.path.stem.split("-", 2)[2]
    path = target / f"vllm-{version}-{stem}.whl"
    info = f"vllm-{version}.dist-info"
    written = _fork_files(wheel.path, version, fork or Fork())
    wheel_file = "Wheel-Version: 1.0\nGenerator: vllm-fork\nRoot-Is-Purelib: false\n"
    wheel_file += "".join(f"Tag: {tag}\n" for tag in sorted(map(str, tags)))
    metadata = {**dist_info, "WHEEL": wheel_file.encode()}
    metadata[ORIGINALS] = written.pop(ORIGINALS)
    new = written | {f"{info}/{name}": content for name, content in metadata.items()}
    target.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".part")
    try:
        with (
            wheel.path.open("rb") as raw,
            zipfile.ZipFile(raw) as source,
            zipfile.ZipFile(scratch, "w", zipfile.ZIP_DEFLATED) as out,
        ):
            kept = [
                member
                for member in source.infolist()
                if ".dist-info/" not in member.filename and member.filename not in new
            ]
            size = sum(member.compress_size for member in kept)
            with tqdm(
                total=size, unit="B", unit_scale=True, desc=f"Writing {path.name}"
            ) as bar:
                for member in kept:
                    _copy_member(raw, member, out)
                    bar.update(member.compress_size)
            record = _record(source, kept, new, info)
            for name, content in (*new.items(), (f"{info}/RECORD", record)):
                # Without a time of its own a member has the time of the build.
                member = zipfile.ZipInfo(name)
                member.external_attr = 0o644 << 16
                out.writestr(member, content, zipfile.ZIP_DEFLATED)
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)
    return path


def _fork_files(wheel: Path, version: str, fork: Fork) -> dict[str, bytes]:
    """The files that differ from the base, and the archive of what they were."""
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(wheel) as archive:
        wanted = {path for path, _ in fork.modules()} | {
            "vllm/__init__.py",
            "vllm/_version.py",
        }
        for name in archive.namelist():
            if name in wanted or name.endswith((".dist-info/METADATA", "/RECORD")):
                archive.extract(name, scratch)
        changes = Tree(Path(scratch), fork=fork).changes()
        stated = Path(scratch, "vllm", "_version.py").read_text(encoding="utf-8")
    originals = Originals(
        {c.path: c.base for c in changes}, {c.path: sha256(c.content) for c in changes}
    )
    return {
        **{c.path: c.content for c in changes},
        "vllm/_version.py": _with_version(stated, version).encode(),
        ORIGINALS: originals.write(),
    }


def _with_version(text: str, version: str) -> str:
    """The module that states vLLM's version, with the fork's."""
    public, _, local = version.partition("+")
    parts = (*map(int, public.split(".")), *([local] if local else []))
    text, strings = re.subn(
        r"^(__version__ = version = ).*$", rf"\g<1>{version!r}", text, flags=re.M
    )
    text, tuples = re.subn(
        r"^(__version_tuple__ = version_tuple = ).*$",
        rf"\g<1>{parts!r}",
        text,
        flags=re.M,
    )
    if (strings, tuples) != (1, 1):
        raise ForkError("vllm/_version.py does not state the version as expected")
    return text


def _copy_member(raw: BinaryIO, member: zipfile.ZipInfo, out: zipfile.ZipFile) -> None:
    """Copy a member as it is compressed, behind a header of its own."""
    raw.seek(member.header_offset)
    header = raw.read(30)
    name_size = int.from_bytes(header[26:28], "little")
    extra_size = int.from_bytes(header[28:30], "little")
    raw.seek(name_size + extra_size, os.SEEK_CUR)
    info = copy.copy(member)
    # Sizes and checksum stand in the header, so nothing need follow the data.
    info.flag_bits &= ~0x08
    info.extra = b""
    assert out.fp is not None
    out.fp.seek(out.start_dir)
    info.header_offset = out.fp.tell()
    out.fp.write(info.FileHeader(zip64=False))
    left = member.compress_size
    while left:
        chunk = raw.read(min(_CHUNK, left))
        out.fp.write(chunk)
        left -= len(chunk)
    out.filelist.append(info)
    out.NameToInfo[info.filename] = info
    out.start_dir = out.fp.tell()


def _record(
    source: zipfile.ZipFile,
    kept: list[zipfile.ZipInfo],
    new: dict[str, bytes],
    info: str,
) -> bytes:
    """RECORD: the base's rows for what is copied, fresh ones for the rest."""
    name = next(n for n in source.namelist() if n.endswith(".dist-info/RECORD"))
    known = {
        row[0]: row
        for row in csv.reader(io.StringIO(source.read(name).decode()))
        if row
    }
    rows = [
        known.get(member.filename)
        or record_row(member.filename, source.read(member.filename))
        for member in kept
        if not member.is_dir()
    ]
    rows += [record_row(*item) for item in new.items()]
    rows.append([f"{info}/RECORD", "", ""])
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode()
