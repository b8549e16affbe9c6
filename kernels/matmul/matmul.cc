#include "kernels/matmul/matmul.h"

#include <new>
#include <utility>

#include "common/base/check.h"
#include "kernels/matmul/matmul_internal.h"

namespace epic {
namespace {

// Matrix tiles are an order of magnitude ahead of everything else in bf16; without them Highway's f32 sums
// are.
internal::MatMulMatrixOr PackBest(const internal::MatrixShape& shape, DType format, const RowReader& reader,
                                  ThreadPool* pool, KernelPath path) {
  if (path == KernelPath::kReference) return internal::PackReference(shape, format, reader, pool);
  if (format == DType::kBf16 && GetCpuFeatures().amx_bf16) return internal::PackDnnl(shape, reader);
  return internal::PackCpu(shape, format, reader, pool);
}

absl::StatusOr<std::unique_ptr<const PackedMatrix>> Pack(const internal::MatrixShape& shape, DType format,
                                                         const RowReader& reader, ThreadPool* pool,
                                                         KernelPath path) {
  EPIC_CHECK(shape.outputs > 0 && shape.inputs > 0);
  try {
    auto packed = PackBest(shape, format, reader, pool, path);
    if (!packed.ok()) return packed.status();
    return std::unique_ptr<const PackedMatrix>(std::move(packed).value());
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("not enough memory for a matrix of weights");
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<const PackedMatrix>> PackMatrix(size_t outputs, size_t inputs, DType format,
                                                               const RowReader& reader, ThreadPool* pool,
                                                               KernelPath path) {
  return Pack({outputs, inputs, false}, format, reader, pool, path);
}

absl::StatusOr<std::unique_ptr<const PackedMatrix>> PackGatedMatrix(size_t outputs, size_t inputs,
                                                                    DType format, const RowReader& reader,
                                                                    ThreadPool* pool, KernelPath path) {
  return Pack({outputs, inputs, true}, format, reader, pool, path);
}

DType BestMatMulFormat() {
  const CpuFeatures& cpu = GetCpuFeatures();
  return cpu.avx512_bf16 || cpu.amx_bf16 ? DType::kBf16 : DType::kF32;
}

void MatMul(const MatMulArgs& args, ThreadPool* pool) {
  if (args.rows == 0) return;
  EPIC_CHECK(args.weights != nullptr && args.x_stride >= args.weights->inputs() &&
             args.out_stride >= args.weights->outputs());
  EPIC_CHECK(!args.weights->gated() || (args.bias == nullptr && !args.accumulate));
  // Every PackedMatrix is made by PackMatrix.
  static_cast<const internal::MatMulMatrix*>(args.weights)->Multiply(args, pool);
}

}  // namespace epic
