#!/usr/bin/env python3
"""Writes the golden files of the store's own formats, independently of the C++ code.

Follows the tables at the top of extents/extent_header.h and core/rows.h only. Heads of objects come from the
golden files of common/storage. Usage: make_golden.py [FOLDER], by default the folder of this script. Files are named after format and version and never change once released.
"""
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


def with_crc(data: bytes) -> bytes:
    return data + struct.pack("<I", crc32c(data))


def extent_header(file: int, pages: int) -> bytes:
    return with_crc(b"EPICEXT1" + struct.pack("<III", 1, file, pages)).ljust(4096, b"\0")


def object_head() -> bytes:
    golden = pathlib.Path(__file__).resolve().parents[3] / "common/storage/golden/object_small.v1.bin"
    data = golden.read_bytes()
    return data[:struct.unpack_from("<I", data, 12)[0]]


def object_entry(number: int, extents) -> bytes:
    head = object_head()
    dtype = struct.unpack_from("<I", head, 100)[0]
    data = b"EOE1" + struct.pack("<IQB", 2 if extents else 1, number, 0) + bytes(32)
    data += struct.pack("<BBI", dtype, 0, len(head)) + head
    if extents:
        data += struct.pack("<I", len(extents)) + b"".join(struct.pack("<III", *run) for run in extents)
    return with_crc(data)


def hybrid(unix_ms: int, counter: int) -> bytes:
    return struct.pack("<qI", unix_ms, counter)


def tombstone(version: int) -> bytes:
    data = b"ETB1" + struct.pack("<I", version) + hybrid(1_700_000_000_123, 4) + struct.pack("<B", 1)
    if version == 2:
        data += struct.pack("<q", 1_600_000_000_000)
    if version >= 3:
        data += struct.pack("<Bq", 1, 1_600_000_000_000)
        data += hybrid(1_650_000_000_000, 7) + hybrid(1_660_000_000_000, 8) + hybrid(1_670_000_000_000, 9)
    return with_crc(data)


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    (folder / "extent_header.v1.bin").write_bytes(extent_header(7, 262144))
    (folder / "object_entry.v1.bin").write_bytes(object_entry(0x0102030405, []))
    (folder / "object_entry.v2.bin").write_bytes(object_entry(77, [(0, 1, 3), (2, 4096, 1)]))
    for version in (1, 2, 3):
        (folder / f"tombstone.v{version}.bin").write_bytes(tombstone(version))


if __name__ == "__main__":
    main()
