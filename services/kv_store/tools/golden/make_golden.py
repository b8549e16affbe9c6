#!/usr/bin/env python3
"""Writes the golden files of backups, independently of the C++ code.

Follows the tables at the top of backup_format.h, core/rows.h and common/storage/record_codec.h and cache_id.h only.
Usage: make_golden.py [FOLDER], by default the folder of this script. Files are named after format and version and never
change once released.
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


def with_crc(data: bytes) -> bytes:
    return data + struct.pack("<I", crc32c(data))


def text(value: str) -> bytes:
    return struct.pack("<I", len(value.encode())) + value.encode()


def hybrid(unix_ms: int, counter: int) -> bytes:
    return struct.pack("<qI", unix_ms, counter)


def cache_id(tenant: str, identity: bytes, tokens) -> bytes:
    data = b""
    for field in (b"epic.cache_id.v1", tenant.encode(), identity, struct.pack(f"<{len(tokens)}I", *tokens)):
        data += struct.pack("<Q", len(field)) + field
    return b"ctx_" + base64.b32encode(hashlib.sha256(data).digest()[:20]).lower()


def context_key(tenant: str, context: bytes) -> bytes:
    return struct.pack(">H", len(tenant.encode())) + tenant.encode() + context


def record(tenant: str, identity: bytes, tokens) -> bytes:
    data = b"ECR1" + struct.pack("<I", 2) + text(tenant) + cache_id(tenant, identity, tokens) + identity + text("tiny")
    data += struct.pack("<IqBB", len(tokens), 1_700_000_000_000, 0, 1)  # created_at_ms, hidden, durability
    data += struct.pack("<BI", 1, 2) + struct.pack("<2I", 1, 2) + struct.pack("<B", 0)  # prefix bos of two ids
    data += struct.pack("<Bq", 1, 42) + text("")  # ready
    data += struct.pack("<Bq", 1, 3600) + struct.pack("<Bq", 1, 1_700_003_600_000) + hybrid(1_700_000_000_000, 3)
    data += struct.pack("<B", 1) + struct.pack("<Bq", 0, 0) + hybrid(1_700_000_000_001, 0)  # pinned softly
    data += struct.pack("<I", 2) + text("a") + text("b") + hybrid(1_700_000_000_000, 3)
    data += text("naïve name") + hybrid(1_700_000_000_002, 1)
    data += hybrid(1_700_000_000_000, 3) + struct.pack("<qQ", 1_700_000_000_009, 5)
    return with_crc(data)


def token_ids(tokens) -> bytes:
    return with_crc(b"ETK1" + struct.pack(f"<II{len(tokens)}I", 1, len(tokens), *tokens))


def tombstone(at, deleted) -> bytes:
    data = b"ETB1" + struct.pack("<I", 3) + hybrid(*at) + struct.pack("<BBq", 0, 1, 1_600_000_000_000)
    return with_crc(data + hybrid(*deleted) + hybrid(0, 0) + hybrid(0, 0))


def entry(kind: int, payload: bytes) -> bytes:
    return with_crc(struct.pack("<BI", kind, len(payload))) + with_crc(payload)


def part(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def backup() -> bytes:
    identity = bytes(range(32))
    data = with_crc(b"EPICBAK1" + struct.pack("<IqQ", 1, 1_700_000_100_000, 0x1122334455667788))
    live = [("tenant", [7] * 20), ("default", [1, 2, 3, 49_999])]  # keys begin with the length of the tenant
    for tenant, tokens in live:
        key = context_key(tenant, cache_id(tenant, identity, tokens))
        before = tombstone((1_650_000_000_000, 0), (1_650_000_000_000, 0)) if tenant == "tenant" else b""
        data += entry(1, part(key) + part(record(tenant, identity, tokens)) + part(token_ids(tokens)) + part(before))
    gone = context_key("default", cache_id("default", identity, [9]))
    data += entry(2, part(gone) + part(tombstone((1_700_000_050_000, 2), (1_700_000_050_000, 1))))
    end = struct.pack("<QQQ", len(live), 1, sum(len(tokens) for _, tokens in live)) + hashlib.sha256(data).digest()
    return data + entry(255, end)


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    (folder / "backup.v1.bin").write_bytes(backup())


if __name__ == "__main__":
    main()
