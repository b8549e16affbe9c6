#!/usr/bin/env python3
"""Writes the golden file of the boot counter, independently of the C++ code: follows the table at the top of
incarnation.h only. Usage: make_golden.py [FOLDER], by default the folder of this script."""
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


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    row = b"EBC1" + struct.pack("<IQ", 1, 0x0102030405060708)
    (folder / "boot_counter.v1.bin").write_bytes(row + struct.pack("<I", crc32c(row)))


if __name__ == "__main__":
    main()
