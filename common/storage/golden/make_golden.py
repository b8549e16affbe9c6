#!/usr/bin/env python3
"""Writes the golden files of the stored formats, independently of the C++ code.

Follows the tables at the top of object_codec.h and record_codec.h only. Usage: make_golden.py [FOLDER], by
default the folder of this script. Files are named after format and version and never change once released.
"""
import base64
import hashlib
import pathlib
import struct
import sys


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def field(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def u32s(values) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def cache_id(tenant: bytes, identity: bytes, tokens) -> bytes:
    fields = field(b"epic.cache_id.v1") + field(tenant) + field(identity) + field(u32s(tokens))
    return b"ctx_" + base64.b32encode(hashlib.sha256(fields).digest()[:20]).lower()


def variant_digest(prefix: int, prefix_tokens: bytes, dtype: int, compute: int) -> bytes:
    data = field(b"epic.object_variant.v1") + struct.pack("<B", prefix) + field(prefix_tokens)
    return hashlib.sha256(data + struct.pack("<BIB", dtype, 1, compute)).digest()


def slab(layer: int, size: int) -> bytes:
    return bytes((31 * layer + 7 * i + (i >> 8)) & 0xFF for i in range(size))


def kv_object(layers, tokens, heads, dim, dtype, first, ids) -> bytes:
    head_bytes = tokens * dim * (4 if dtype == 0 else 2)
    slabs = [slab(layer, 2 * heads * head_bytes) for layer in range(layers)]
    crcs = []
    for data in slabs:
        for head in range(2 * heads):
            part = data[head * head_bytes:(head + 1) * head_bytes]
            crcs += [crc32c(part[at:at + 262144]) for at in range(0, len(part), 262144)]
    build = hashlib.sha256(field(b"epic.kv_build.v1") + field(u32s(crcs))).digest()
    size = 144 + 4 * tokens + 4 + 4 * len(crcs) + 4
    header = b"EPICKVO1" + struct.pack("<II", 1, size) + cache_id(b"default", bytes(32), ids)
    header += variant_digest(0, bytes(32), dtype, 0)
    header += struct.pack("<6I", layers, tokens, heads, dim, dtype, first) + build
    header += struct.pack("<I", crc32c(header))
    out = header
    for section in (u32s(ids), u32s(crcs)):
        out += section + struct.pack("<I", crc32c(section))
    align = 64 if 2 * heads * head_bytes < 4096 else 4096
    for data in slabs:
        out += bytes(-len(out) % align) + data
    return out


def text(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def opt(value) -> bytes:
    return struct.pack("<Bq", value is not None, value or 0)


def record(version: int) -> bytes:
    ids = [5, 6, 7]
    identity = bytes(range(32))
    out = b"ECR1" + struct.pack("<I", version) + text(b"acme") + cache_id(b"acme", identity, ids) + identity
    out += text(b"tiny") + struct.pack("<IqBB", 3, 1700000000123, 1, 2)
    out += struct.pack("<BI", 3, 2) + u32s([9, 10]) + b"\x01" + cache_id(b"acme", identity, [9, 10])
    out += struct.pack("<Bq", 2, 42) + text(b"why")
    out += opt(60) + opt(1700000060123) + struct.pack("<qI", 1700000000123, 4)
    out += struct.pack("<B", 2) + opt(None) + struct.pack("<qI", 1700000000124, 5)
    out += struct.pack("<I", 2) + text(b"a") + text("ключ".encode()) + struct.pack("<qI", 1700000000125, 6)
    out += text(b"name") + struct.pack("<qI", 1700000000126, 7)
    if version >= 2:
        out += struct.pack("<qI", 1700000000122, 3)
    out += struct.pack("<qQ", 1700000001000, 17)
    return out + struct.pack("<I", crc32c(out))


def tokens() -> bytes:
    out = b"ETK1" + struct.pack("<II", 1, 3) + u32s([0, 1, 0xFFFFFFFF])
    return out + struct.pack("<I", crc32c(out))


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    folder = folder if folder.is_dir() else folder.parent
    (folder / "object_small.v1.bin").write_bytes(kv_object(2, 3, 2, 4, 1, 0, [1, 2, 3]))
    (folder / "object_aligned.v1.bin").write_bytes(kv_object(2, 16, 1, 64, 0, 4, list(range(16))))
    (folder / "record.v1.bin").write_bytes(record(1))
    (folder / "record.v2.bin").write_bytes(record(2))
    (folder / "tokens.v1.bin").write_bytes(tokens())


main()
