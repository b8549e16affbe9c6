#include "kernels/attention_mass/attention_mass.h"

#include "common/base/check.h"
#include "kernels/attention_mass/attention_mass_internal.h"

namespace epic {
namespace {

void CheckArgs(const SegmentAttentionArgs& args) {
  EPIC_CHECK(args.kv_heads > 0 && args.heads % args.kv_heads == 0);
  EPIC_CHECK(args.rope != nullptr && args.rope->half_dim() * 2 == args.head_dim);
}

}  // namespace

bool AttentionMass(const AttentionMassArgs& args, ThreadPool* pool, KernelPath path) {
  if (args.attention.rows == 0) return true;
  CheckArgs(args.attention);
  if (path == KernelPath::kReference) return internal::AttentionMassReference(args);
  return internal::AttentionMassCpu(args, pool);
}

bool AttentionChange(const AttentionChangeArgs& args, ThreadPool* pool, KernelPath path) {
  if (args.fresh.rows == 0) return true;
  CheckArgs(args.fresh);
  EPIC_CHECK(args.fresh.segments.size() == 1 && args.fresh.segments[0].row_positions != nullptr);
  if (path == KernelPath::kReference) return internal::AttentionChangeReference(args);
  return internal::AttentionChangeCpu(args, pool);
}

}  // namespace epic
