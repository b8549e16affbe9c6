"""Which folder may include what: the arrows between the parts of EPIC, as one table each for our own headers and for
third-party ones. main -> rpc/http -> core -> interfaces of common, engine and model; engine -> kernels."""

import re

import cpp_text
from tree import Problem

# (folder of the including file, folders it may include, what to do instead). The first row that matches counts.
# {service} is the part of services/<service>/ that the file itself is in.
ARROWS = [
    (r"common/rpc/", ["common/", "epic/v1/"], "common knows no service and no kernel: pass what it needs in"),
    (r"common/transport/grpc/", ["common/", "epic/v1/"],
     "common knows no service and no kernel: pass what it needs in"),
    (r"common/transport/", ["common/base/", "common/metrics/", "common/status/", "common/storage/", "common/transport/"],
     "paths stand on storage and below rpc: only the path in common/transport/grpc/ knows gRPC"),
    (r"common/coordination/etcd/", ["common/", "etcd/v3/"],
     "common knows no service and no kernel: pass what it needs in"),
    (r"common/coordination/", ["common/base/", "common/config/", "common/coordination/", "common/metrics/", "common/status/"],
     "coordination stands on base and status: only common/coordination/etcd/ knows a store"),
    (r"common/", ["common/"],
     "common knows no service, kernel or proto: put an interface in common and its implementation above"),
    (r"kernels/", ["kernels/", "common/base/", "common/status/"],
     "kernels know no service and no proto: take plain arguments (shapes, pointers) instead"),
    (r"services/model/", ["services/model/", "common/"], "services/model stands below everything but common"),
    (r"services/engine/", ["services/engine/", "services/model/", "kernels/", "common/"],
     "the engine knows models and kernels only: take the rest through an interface of common or of its own"),
    (r"services/worker_api/", ["services/worker_api/", "services/engine/", "services/model/", "common/"],
     "interfaces between services are made of types of common, model and engine"),
    (r"services/(?P<service>\w+)/core/",
     ["services/{service}/core/", "services/worker_api/", "services/engine/", "services/model/", "common/"],
     "a core knows interfaces only: convert in rpc/ or http/, reach another service through services/worker_api"),
    (r"services/router/placement/(?!bench/)", ["services/router/placement/", "common/"],
     "placement is pure logic over values: convert what others publish beside it"),
    (r"services/(?P<service>\w+)/rpc/",
     ["services/{service}/rpc/", "services/{service}/core/", "services/worker_api/", "common/", "epic/v1/"],
     "a door converts and calls its own core: let the core do it"),
    (r"services/(?P<service>\w+)/http/",
     ["services/{service}/http/", "services/{service}/core/", "services/worker_api/", "common/"],
     "a door converts and calls its own core: let the core do it"),
    (r"services/node/", ["services/", "kernels/", "common/"], "services/node wires cores and doors together"),
    (r"services/cli/", ["services/cli/", "services/node/", "common/", "epic/v1/"],
     "the command line talks to a server through its doors, or starts one through services/node"),
    (r"services/(?P<service>\w+)/",
     ["services/{service}/", "services/worker_api/", "services/engine/", "services/model/", "common/", "epic/v1/"],
     "services talk by proto or through services/worker_api only"),
    (r"loadgen/", ["loadgen/", "services/engine/", "services/model/", "kernels/api/", "common/", "epic/v1/"],
     "the load generator is a client, or runs an engine of its own: use the doors"),
]

# (library, its headers, where they may be included, what to use instead).
THIRD_PARTY = [
    ("gRPC", r"grpc(pp)?/",
     r"common/rpc/|common/transport/grpc/|common/coordination/etcd/|services/\w+/(\w+/)?rpc/|services/\w+/main\.cc|services/(node|cli)/|loadgen/",
     "the core's own types"),
    ("etcd's wire", r"etcd/v3/", r"common/coordination/etcd/", "common/coordination/coordinator.h"),
    ("protobuf", r"google/(protobuf|rpc)/|epic/v1/.*\.pb\.h",
     r"common/rpc/|common/transport/grpc/|services/\w+/(\w+/)?rpc/|services/\w+/main\.cc|services/(node|cli)/|loadgen/",
     "the core's own types"),
    ("RocksDB", r"rocksdb/", r"services/kv_store/(?!core/)|common/status/rocksdb_status",
     "the table interface of the store's core"),
    ("liburing", r"liburing", r"services/kv_store/extents/uring_engine", "the I/O engine interface of extents/"),
    ("UCX", r"uc[pstm]/", r"common/transport/ucx/", "common/transport"),
    ("CUDA", r"cuda|cublas|nccl|nvml", r"kernels/", "the device interface of kernels/"),
    ("oneDNN", r"(oneapi/)?dnnl", r"kernels/", "kernels/matmul"),
    ("Highway", r"hwy/", r"kernels/", "an op of kernels/"),
    ("Boost.Beast and Asio", r"boost/", r"services/\w+/http/|services/(node|cli)/|common/http/|loadgen/",
     "the core's own types"),
    ("OpenSSL", r"openssl/", r"common/base/digest\.cc|services/\w+/(http|rpc)/|services/(node|cli)/|common/(http|rpc)/",
     "common/base/digest.h"),
    ("ISA-L", r"isa-l", r"common/base/crc32c", "common/base/crc32c.h"),
    ("prometheus-cpp", r"prometheus/", r"common/metrics/metrics\.cc", "common/metrics/metrics.h"),
    ("spdlog", r"spdlog/", r"common/log/log\.cc", "common/log/log.h"),
    ("yaml-cpp", r"yaml-cpp/", r"common/config/", "common/config/config.h"),
    ("PCRE2 and utf8proc", r"pcre2\.h|utf8proc\.h", r"services/model/|services/cli/text_input\.cc|loadgen/answers/",
     "services/model/tokenizer.h"),
    ("zlib", r"zlib\.h", r"loadgen/datasets/record_reader", "loadgen/datasets/record_reader.h"),
    ("CLI11", r"CLI/", r"services/cli/|services/\w+/main\.cc|common/process/|loadgen/",
     "common/process/part_process.h"),
    ("GoogleTest", r"g(test|mock)/", r"$never", "a test file"),
]

OWN = re.compile(r"(common|kernels|services|loadgen|tests|epic/v1)/")


def _arrow_problem(file, line, path):
    for folder, allowed, advice in ARROWS:
        match = re.match(folder, file.path)
        if not match:
            continue
        allowed = [prefix.format(**match.groupdict()) for prefix in allowed]
        if not path.startswith(tuple(allowed)):
            return Problem(file.path, line, f'"{path}" is a wrong direction: {advice}')
        return None
    return None


def check(tree):
    problems = []
    for file in tree.files:
        if not file.is_cpp or file.is_test:
            continue
        for line, path, is_angled in cpp_text.includes(file.text):
            if not is_angled and "/" not in path:
                problems.append(Problem(file.path, line, f'"{path}": write includes from the top of the project'))
                continue
            if OWN.match(path):
                if path.startswith("tests/") or "/testing/" in path:
                    problems.append(Problem(file.path, line, f'"{path}" is for tests only'))
                    continue
                problem = _arrow_problem(file, line, path)
                if problem:
                    problems.append(problem)
                    continue
            for library, headers, places, instead in THIRD_PARTY:
                if re.match(headers, path) and not re.match(places, file.path):
                    problems.append(Problem(file.path, line, f"{library} is not for this folder: use {instead}"))
    return problems
