#!/usr/bin/env python3
"""Writes the golden files of this folder from the table in ../node_row.h, without EPIC's code: run it here."""

import struct


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def node_row(disk, erase_due, served_at, beat, starts):
    out = b"ENR1" + struct.pack("<IBBQQI", 1, disk, erase_due, served_at, beat, len(starts))
    for number, unix_ms, counter in starts:
        out += struct.pack("<QqI", number, unix_ms, counter)
    return out + struct.pack("<I", crc32c(out))


with open("node_row.v1.bin", "wb") as file:
    file.write(node_row(1, 1, 41, 43, [(40, 1_700_000_000_123, 7), (43, 1_700_010_800_000, 0)]))
