"""Make hostile files out of valid ones: damaged bytes, strange contents, traps, archive and header tricks.

Every function takes a ``random.Random``, so that a case is repeated by its seed.
"""

import copy
import io
import json
import os
import pickle
import random
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy
from safetensors.torch import save as serialise
from torch import nn

BYTE_DAMAGES = (
    "cut",
    "flip",
    "set",
    "drop",
    "repeat",
    "insert",
    "reverse",
    "zero",
    "swap",
    "splice",
    "length",
    "append",
)
NUMBERS = (0, 1, -1, 2**31, 2**63 - 1, -(2**63), 2**64, 10**30, 1e308, float("nan"), float("inf"), True, None)
TEXTS = (
    "",
    "\x00",
    "a\nb",
    "\x1b[31mred",
    "../../x",
    "weight",
    "module.",
    "\ud800",
    "é" * 300,
    "x" * 20_000,
    "<script>",
)
DTYPES = (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool, torch.complex64,
          torch.float8_e4m3fn)  # fmt: skip
BAD_HEADERS = (
    "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 1, 1000000000, 1000000000), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-4, 1), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
    "{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (4,), }",
    "{'descr': '<f4', 'fortran_order': 1, 'shape': [4, 4], }",
    "{'descr': '<U999999999', 'fortran_order': False, 'shape': (4,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (True, 4), }",
    "{'descr': '<f4'}",
    "[]",
    "(" * 5000,
    "9" * 5000,
)
"""Headers of ``.npy`` files that no array has."""


def damage_bytes(content: bytes, draw: random.Random, others: bytes = b"") -> bytes:
    """Damage up to three places, half of them near the beginning or the end, where headers and directories are."""
    data = bytearray(content)
    for _ in range(draw.randint(1, 3)):
        if not data:
            break
        near = min(len(data), 300)
        place = draw.choice((draw.randrange(near), len(data) - 1 - draw.randrange(near), draw.randrange(len(data))))
        count, how = draw.choice((1, 2, 4, 8, draw.randrange(1, 400))), draw.choice(BYTE_DAMAGES)
        part = data[place : place + count]
        if how == "cut":
            del data[place:]
        elif how == "flip":
            data[place] ^= 1 << draw.randrange(8)
        elif how == "set":
            data[place] = draw.randrange(256)
        elif how == "drop":
            del data[place : place + count]
        elif how == "repeat":
            data[place:place] = part
        elif how == "insert":
            data[place:place] = bytes([draw.randrange(256)]) * count
        elif how == "reverse":
            data[place : place + count] = part[::-1]
        elif how == "zero":
            data[place : place + count] = bytes(len(part))
        elif how == "swap":
            data = data[place:] + data[:place]
        elif how == "splice":
            data[place:] = others[min(place, len(others)) :]
        elif how == "length":
            data[:8] = (draw.randrange(256) << 8 * draw.randrange(8)).to_bytes(8, "little")
        else:
            data += draw.choice((b"\0" * count, others, content))
    return bytes(data)


class Trap:
    """Leaves a mark when it is unpickled, by one of several ways that a pickle can call code."""

    def __init__(self, mark: Path, way: int) -> None:
        self.mark, self.way = str(mark), way

    def __reduce__(self) -> tuple[Any, ...]:
        code = f"open({self.mark!r}, 'w').close()"
        return (
            (os.mkdir, (self.mark,)),
            (os.system, (f"touch {self.mark}",)),
            (exec, (code,)),
            (eval, (code,)),
            (Path.touch, (Path(self.mark),)),
            (open, (self.mark, "w")),
            (OrderedDict, (), {}, None, iter([("weight", _Inner(self.mark))])),
            (torch.save, ({}, self.mark)),
            (np.save, (self.mark, np.zeros(1))),
            (np.memmap, (self.mark, np.float32, "w+", 0, (4,))),
        )[self.way % 10]


class _Inner:
    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.mark,)


def strange_value(draw: random.Random, mark: Path, like: object = None) -> object:
    """Return a value that no training writes, often shaped like the one whose place it takes."""
    kind = draw.randrange(9)
    if kind < 5 and isinstance(like, torch.Tensor) and is_ordinary(like):
        return strange_tensor(draw, like)
    if kind == 5:
        return Trap(mark, draw.randrange(10))
    if kind == 6:
        nested: object = {}
        for _ in range(draw.choice((1, 5, 300))):
            nested = draw.choice(
                ([nested], {"state_dict": nested}, (nested, nested) if draw.random() < 0.01 else [nested])
            )
        return nested
    return draw.choice((draw.choice(NUMBERS), draw.choice(TEXTS), [], {}, (), [None] * 5, {1: 2}, {"a": torch.ones(2)},
                        torch.Size([3]), torch.float16, b"bytes", {3, 4}, complex(1, 2), -0.0))  # fmt: skip


def is_ordinary(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a small dense one, and not a strange one made before."""
    is_special = tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested or tensor.is_meta
    return not is_special and tensor.numel() < 10**6


def strange_tensor(draw: random.Random, like: torch.Tensor) -> torch.Tensor:
    """Return a tensor of another shape, type, layout or storage, or with values that are not finite."""
    values = like.detach().clone() if like.is_complex() else like.detach().clone().float()
    flat = values.reshape(-1)
    way = draw.randrange(14)
    if way == 0:
        return values.to(draw.choice(DTYPES))
    if way == 1 and flat.numel():
        flat[draw.randrange(flat.numel())] = draw.choice((float("nan"), float("inf"), -float("inf"), 1e38, 1e-42))
        return flat.reshape(values.shape)
    if way == 2:
        return values.T if values.ndim == 2 else values[None]
    if way == 3:
        return torch.zeros(draw.choice(((), (0,), (3, 0), (1,) * 8, (7, 5), (2, 2, 2))))
    if way == 4:
        return values.to_sparse()
    if way == 5:
        return torch.ones(()).expand(draw.choice((tuple(values.shape), (10**7, 10**7))))
    if way == 6:
        return torch.as_strided(torch.zeros(4), (2, 2), (1, 1))
    if way == 7 and values.numel():
        return torch.quantize_per_tensor(values, 0.1, 0, torch.qint8)
    if way == 8:
        return values.to(torch.complex64).conj()
    if way == 9:
        return nn.Parameter(values)
    if way == 10:
        return values.to("meta")
    if way == 11:
        return values * draw.choice((0.0, 1e-30, 1e30, -1.0))
    if way == 12:
        return torch.nested.nested_tensor([values.reshape(-1), torch.ones(2)])
    return torch.zeros_like(values).add(draw.choice((0.0, 1.0)))


def strange_numbers(draw: random.Random, like: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same shape with other values or another floating-point type."""
    if not like.is_floating_point():
        return like
    ways: tuple[Callable[[], torch.Tensor], ...] = (
        lambda: torch.zeros_like(like),
        lambda: torch.ones_like(like),
        lambda: like * draw.choice((1e-42, 1e-30, 1e30, 1e37, -1.0)),
        lambda: like.to(draw.choice((torch.float16, torch.bfloat16, torch.float64))),
        lambda: torch.full_like(like, torch.finfo(like.dtype).max),
        lambda: torch.randn(like.shape, generator=torch.Generator().manual_seed(draw.randrange(99))),
        lambda: like.flip(0) if like.ndim else like,
        lambda: like.round(),
    )
    return draw.choice(ways)()


def change_numbers(content: Any, draw: random.Random) -> Any:
    """Return nested content with other values in some of its tensors, so that a file loads and holds nonsense."""
    content = copy.deepcopy(content)
    for *path, key in places_in(content):
        parent = content
        for one in path:
            parent = parent[one]
        if isinstance(parent[key], torch.Tensor) and draw.random() < 0.4:
            parent[key] = strange_numbers(draw, parent[key])
    return content


def places_in(content: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the keys that lead to every value of nested dictionaries and lists, down to a depth of eight."""
    found = [path] if path else []
    if len(path) > 8:
        return found
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        found += places_in(value, (*path, key))
    return found


def disturb(content: Any, draw: random.Random, mark: Path) -> Any:
    """Return nested content with up to three values replaced, renamed, removed, doubled, exchanged or wrapped."""
    content = copy.deepcopy(content)
    for _ in range(draw.randint(1, 3)):
        places = places_in(content)
        if not places:
            break
        *path, key = draw.choice(places)
        parent = content
        for one in path:
            parent = parent[one]
        how = draw.randrange(8)
        if how <= 2:
            parent[key] = strange_value(draw, mark, parent[key])
        elif how == 3:
            del parent[key]
        elif how == 4 and isinstance(parent, dict):
            parent[draw.choice((*TEXTS, *NUMBERS[:5], (1, 2), f"module.{key}", f"{key}.0"))] = parent.pop(key)
        elif how == 5:
            other = draw.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
            parent[key], parent[other] = parent[other], parent[key]
        elif how == 6:
            parent[key] = draw.choice(
                ([parent[key]], {"model": parent[key]}, {key: parent[key]} if isinstance(key, str) else {})
            )
        elif isinstance(parent, dict):
            parent[f"{key}.more" if isinstance(key, str) else 99] = parent[key]
            if draw.random() < 0.3:
                parent["model"] = content  # contains itself
    if draw.random() < 0.1:
        content = draw.choice((strange_value(draw, mark), [content], {"model": content}, {"a": {"b": content}}))
    return content


def save_torch(content: object, draw: random.Random) -> bytes:
    """Return a PyTorch file of the content, new or old, or a plain pickle of any protocol."""
    buffer, way = io.BytesIO(), draw.random()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if way < 0.85:
                torch.save(content, buffer, _use_new_zipfile_serialization=way < 0.7)
            else:
                pickle.dump(content, buffer, protocol=draw.randrange(6))
        except Exception:  # not everything can be saved; then an empty file, which is a case too
            return buffer.getvalue()
    return buffer.getvalue()


def save_safetensors(content: object, draw: random.Random) -> bytes:
    """Return a safetensors file of the tensors in the content, as far as it can hold them."""
    tensors = content if isinstance(content, dict) else {}
    kept = {str(name): one for name, one in tensors.items() if isinstance(one, torch.Tensor) and one.numel() < 10**6}
    while True:
        try:
            return serialise({name: value.detach().contiguous() for name, value in kept.items()})
        except Exception:  # sparse, complex and other tensors that the format does not know
            if not kept:
                return b""
            kept.pop(draw.choice(list(kept)))


def disturb_zip(content: bytes, draw: random.Random, mark: Path) -> bytes:
    """Pack an archive anew with valid checksums, its members damaged, renamed, doubled, removed or compressed."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [(one.filename, archive.read(one)) for one in archive.infolist()]
    except Exception:
        return damage_bytes(content, draw)
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(members)) if members else 0
        name, body = members[place] if members else ("x/data.pkl", b"")
        how = draw.randrange(9)
        if how <= 2:
            pickles = [n for n, (one, _) in enumerate(members) if one.endswith((".pkl", ".npy"))]
            place = draw.choice(pickles) if pickles and how < 2 else place
            members[place : place + 1] = [(members[place][0], damage_bytes(members[place][1], draw))] if members else []
        elif how == 3:
            members[place : place + 1] = [
                (draw.choice(("../up", "/abs", name.upper(), name + "/", "a" * 300, "b/data.pkl")), body)
            ]
        elif how == 4:
            members.append((name, damage_bytes(body, draw)))
        elif how == 5:
            del members[place : place + 1]
        elif how == 6:
            members.append((draw.choice((name, "x.npy", "archive/data/9")), bytes(draw.choice((0, 10, 5 * 2**20)))))
        elif how == 7 and members:
            body = pickle.dumps({"w": Trap(mark, draw.randrange(10))}, protocol=draw.randrange(2, 5))
            members = [(n, body if n.endswith("data.pkl") else one) for n, one in members]
        elif members:
            members = [(n, b"big" if n.endswith("byteorder") else one) for n, one in members]
    buffer = io.BytesIO(draw.choice((b"", b"", b"prefix")))
    buffer.seek(0, io.SEEK_END)
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "a", draw.choice((0, 0, 8, 14))) as archive:
        warnings.simplefilter("ignore")  # two members of one name
        for name, body in members:
            archive.writestr(zipfile.ZipInfo(name) if draw.random() < 0.9 else name, body)
        archive.comment = draw.choice((b"", b"", b"PK\x05\x06" * 4))
    return buffer.getvalue()


def disturb_safetensors(content: bytes, draw: random.Random) -> bytes:
    """Write a wrong header before the values: offsets, shapes, types, names, lengths, or no JSON at all."""
    try:
        length = int.from_bytes(content[:8], "little")
        header, values = json.loads(content[8 : 8 + length]), content[8 + length :]
    except ValueError:
        return damage_bytes(content, draw)
    names = [name for name in header if name != "__metadata__"] or ["w"]
    for _ in range(draw.randint(1, 2)):
        one = header.setdefault(draw.choice(names), {})
        if not isinstance(one, dict):
            continue
        how = draw.randrange(7)
        if how == 0:
            one["data_offsets"] = draw.choice(([0, 2**62], [8, 0], [-4, 4], [0], "x", [0, len(values)], None, [0.5, 4]))
        elif how == 1:
            one["shape"] = draw.choice(([2**40, 2**40], [-1], [], [0], [1.5], "6", None, [1] * 100, [2**63]))
        elif how == 2:
            one["dtype"] = draw.choice(("F64", "BF16", "BOOL", "I8", "F8_E4M3", "X", 3, None, "f32", "C64", "U64"))
        elif how == 3:
            header[draw.choice(TEXTS[:-5])] = header.get(draw.choice(names))
        elif how == 4:
            header["__metadata__"] = draw.choice(({"format": "pt"}, {"a": 1}, [], None, {"x": "y" * 10**5}, "no"))
        elif how == 5:
            header.pop(draw.choice(names), None)
        else:
            header[draw.choice(names)] = draw.choice((None, [], 3, {}, {"dtype": "F32"}))
    text = json.dumps(header).encode("utf-8", "replace")
    if draw.random() < 0.2:
        text = draw.choice((b"", b"[]", b"null", b"{" * 3000, b"[" * 50_000, text[:-1], b"\xff" * 16, b"{}{}"))
    told = draw.choice((*[len(text)] * 6, len(text) + 9, 2**63, 0, 3))
    return told.to_bytes(8, "little") + text + values[: draw.choice((*[len(values)] * 5, 0, 3))]


def disturb_record(content: bytes, draw: random.Random, mark: Path) -> bytes:
    """Return a saved record with other JSON values in its header."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    values = disturb(json.loads(header["__metadata__"]["values"]), draw, mark)
    try:
        header["__metadata__"]["values"] = json.dumps(values, default=str)
    except (ValueError, TypeError, RecursionError):  # contains itself, or has keys that JSON cannot hold
        header["__metadata__"]["values"] = draw.choice(("null", "[]", "{}", "{", "[" * 5000, "3"))
    text = json.dumps(header).encode("utf-8", "replace")
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def disturb_table(content: bytes, draw: random.Random) -> bytes:
    """Return a CSV file with other cells."""
    rows = [line.split(b",") for line in content.splitlines()]
    for _ in range(draw.randint(1, 3)):
        row = draw.choice(rows)
        row[draw.randrange(len(row))] = draw.choice((
            b"", b"nan", b"inf", b"1e999", b"-0", b"0x10", b"1_000", b'"', b'"a,b"', b"=cmd()", b"\x1b[31m", b"x" * 999,
            b"\xff", b"1e308", b" 7 ", "\u0663".encode(), b"9" * 400, b"class", b"a",
        ))  # fmt: skip
    return b"\n".join(b",".join(row) for row in rows)


def strange_array(draw: random.Random, like: np.ndarray[Any, Any], mark: Path) -> bytes:
    """Return an ``.npy`` file of another shape, type or header, or one that holds a pickle."""
    way, buffer = draw.randrange(8), io.BytesIO()
    if way == 0:
        npy.write_array(buffer, np.array([Trap(mark, draw.randrange(10))] * 2, dtype=object))
    elif way == 1:
        kind = draw.choice(("f2", "f4", "f8", ">f4", "i8", "u1", "?", "U3", "S2", "c8", "M8[s]", "f4,i4", "V7", "g"))
        npy.write_array(buffer, np.zeros(like.shape, dtype=kind))
    elif way == 2:
        shape = draw.choice(((), (0,), (4, 0), like.shape[:1], like.shape[::-1], (1,) * 12, (3, 2, 2), (4, 4)))
        npy.write_array(buffer, np.full(shape, draw.choice((0.0, -1.0, 300.0, 0.5))))
    elif way == 3:
        values = like.astype(float)
        values.reshape(-1)[draw.randrange(values.size)] = draw.choice((np.nan, np.inf, 1e300, -5, 256, 0.5, 1e18))
        npy.write_array(buffer, values)
    elif way == 4:
        npy.write_array(buffer, np.asfortranarray(like), version=draw.choice(((1, 0), (2, 0), (3, 0))))
    else:
        npy.write_array(buffer, like)
        text = draw.choice((*BAD_HEADERS, f"__import__('os').mkdir({str(mark)!r})")).encode()
        body = buffer.getvalue()
        start = 10 + int.from_bytes(body[8:10], "little")
        return body[:8] + len(text).to_bytes(2, "little") + text + body[start:]
    return buffer.getvalue()


def disturb_npz(arrays: dict[str, np.ndarray[Any, Any]], draw: random.Random, mark: Path) -> bytes:
    """Return an ``.npz`` file with strange arrays among the valid ones, or strange names."""
    members: list[tuple[str, bytes]] = []
    chosen = draw.choice(list(arrays))
    for name, array in arrays.items():
        buffer = io.BytesIO()
        npy.write_array(buffer, array)
        strange = name == chosen or draw.random() < 0.2
        members.append((f"{name}.npy", strange_array(draw, array, mark) if strange else buffer.getvalue()))
    if draw.random() < 0.2:
        members.append((draw.choice(("x_test.npy", "x_train.npy", "X.npy", "y.npy", "../x.npy")), members[0][1]))
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", draw.choice((0, 8))) as archive:
        warnings.simplefilter("ignore")
        for name, body in members:
            archive.writestr(name, body)
    return buffer.getvalue()


def replace_by_another_kind(path: Path, draw: random.Random) -> None:
    """Put a folder, a dead link, a link to itself, a pipe or nothing in the place of a file."""
    path.unlink()
    ways: tuple[Callable[[], object], ...] = (
        path.mkdir,
        lambda: path.symlink_to(path.with_name("nowhere")),
        lambda: path.symlink_to(path.name),
        lambda: os.mkfifo(path),
        lambda: None,
        lambda: path.write_bytes(b""),
        lambda: path.write_bytes(draw.randbytes(draw.randrange(3000))),
        lambda: path.write_text(draw.choice(TEXTS), errors="replace"),
    )
    draw.choice(ways)()
