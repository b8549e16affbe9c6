#!/usr/bin/env python3
"""Writes the golden files of the store's own formats, independently of the C++ code.

Follows the table at the top of extents/extent_header.h only. Usage: make_golden.py [FOLDER], by default the
folder of this script. Files are named after format and version and never change once released.
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


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    (folder / "extent_header.v1.bin").write_bytes(extent_header(7, 262144))


if __name__ == "__main__":
    main()
