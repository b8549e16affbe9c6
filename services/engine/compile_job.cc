// Compiles one chunk behind its prefix and hands its rows to the sink, layer by layer.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "services/engine/job.h"

namespace epic {
namespace {

class CompileJob final : public Job {
 public:
  CompileJob(const JobContext& context, CompileRequest request, std::shared_ptr<CompileSink> sink)
      : Job(request.cancel, context.clock->SteadyNs()),
        prefix_rows_(static_cast<uint32_t>(request.prefix_tokens.size())),
        tokens_(std::move(request.prefix_tokens)),
        sink_(std::move(sink)) {
    tokens_.insert(tokens_.end(), request.tokens.begin(), request.tokens.end());
    bytes_ = context.shape.RowBytes() * tokens_.size();
    sequences_ = 0;
    compile_rows_ = static_cast<uint32_t>(tokens_.size());
    if (prefix_rows_ > 0) bytes_ += context.shape.RowBytes() / context.shape.layers * tokens_.size();
  }

  void Admit(const JobContext& context) override {
    std::vector<uint32_t> positions(tokens_.size());
    std::iota(positions.begin(), positions.end(), 0u);
    panels_.block = std::make_shared<KvBlock>(context.shape, std::move(positions));
    panels_.tokens = std::move(tokens_);
  }

  void OnPanel(const JobContext& context) override {
    if (panels_.remaining() > 0) return;
    for (uint32_t layer = 0; layer < context.shape.layers; ++layer) {
      if (!AllFinite(ChunkSlab(context.shape, layer), context.shape.dtype)) {
        return FailNotFinite(
            "the model's keys or values are not numbers for this text, and the context was not stored: check "
            "the model file");
      }
    }
    for (uint32_t layer = 0; layer < context.shape.layers && status_.ok(); ++layer) {
      // Not OK with layers missing: OnDone(OK) says that the sink has had them all.
      status_ = cancelled() ? CancelledError() : sink_->OnLayer(layer, ChunkSlab(context.shape, layer));
    }
    complete_ = true;
  }

  bool complete() const override { return complete_; }
  void Release() override {
    Job::Release();
    slab_ = {};
  }
  void Finish(const absl::Status& status) override { sink_->OnDone(status); }

 private:
  // [2][kv_heads][tokens][head_dim] of the chunk's rows alone. Valid until the next call.
  ByteSpan ChunkSlab(const KvShape& shape, uint32_t layer) {
    const ByteSpan slab = panels_.block->Layer(layer);
    if (prefix_rows_ == 0) return slab;
    const uint32_t rows = panels_.block->capacity();
    const size_t row_bytes = size_t{shape.head_dim} * SizeOf(shape.dtype);
    const size_t kept = (rows - prefix_rows_) * row_bytes;
    slab_.resize(2 * shape.kv_heads * kept);
    for (uint32_t plane = 0; plane < 2 * shape.kv_heads; ++plane) {
      std::memcpy(slab_.data() + plane * kept,
                  slab.data() + plane * rows * row_bytes + prefix_rows_ * row_bytes, kept);
    }
    return slab_;
  }

  const uint32_t prefix_rows_;
  std::vector<TokenId> tokens_;  // prefix and chunk, until Admit
  const std::shared_ptr<CompileSink> sink_;
  std::vector<std::byte> slab_;
  bool complete_ = false;
};

}  // namespace

std::unique_ptr<Job> MakeCompileJob(const JobContext& context, CompileRequest request,
                                    std::shared_ptr<CompileSink> sink) {
  return std::make_unique<CompileJob>(context, std::move(request), std::move(sink));
}

}  // namespace epic
