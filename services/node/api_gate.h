// The Apis that the doors hold: they refuse with 503 while the node loads or drains and pass calls on else.
//
// Made before the doors open and alive until they have stopped. Thread-safe: the cores are set once, before
// Open.
#ifndef EPIC_SERVICES_NODE_API_GATE_H_
#define EPIC_SERVICES_NODE_API_GATE_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/router/core/api.h"

namespace epic {

enum class NodeState : uint8_t { kLoading, kServing, kDraining };

class ApiGate final : public ContextApi, public ChatApi, public ModelApi, public QualityApi {
 public:
  // The cores outlive every call that passes the gate.
  void Open(ContextApi* contexts, ChatApi* chat, ModelApi* models, QualityApi* quality);
  void Drain() { state_.store(NodeState::kDraining); }
  NodeState state() const { return state_.load(); }

  void Create(const RequestScope& scope, CreateContextRequest request, CreateDone done) override;
  absl::StatusOr<ContextRecord> Get(const RequestScope& scope, const std::string& id) override;
  absl::StatusOr<ContextPage> List(const RequestScope& scope, const ListContextsRequest& request) override;
  absl::StatusOr<ContextRecord> Patch(const RequestScope& scope, const std::string& id,
                                      const PatchContextRequest& request) override;
  absl::Status Delete(const RequestScope& scope, const std::string& id) override;
  void Erase(const RequestScope& scope, const std::string& id, EraseDone done) override;
  void Complete(const RequestScope& scope, ChatRequest request, std::shared_ptr<ChatSink> sink) override;
  std::vector<ModelInfo> List() const override;
  absl::StatusOr<ModelInfo> Get(const std::string& id) const override;
  absl::StatusOr<std::vector<TokenPiece>> Tokenize(const std::optional<std::string>& model,
                                                   const std::string& content) const override;
  absl::StatusOr<std::string> Detokenize(const std::optional<std::string>& model,
                                         const std::vector<int64_t>& tokens) const override;
  absl::StatusOr<std::string> ApplyTemplate(const std::optional<std::string>& model,
                                            const std::vector<ChatMessage>& messages) const override;
  absl::StatusOr<ChatQuality> Compare(const RequestScope& scope, const ChatRequest& request) override;

 private:
  absl::Status Pass() const;

  // Written by Open before state_ says kServing.
  ContextApi* contexts_ = nullptr;
  ChatApi* chat_ = nullptr;
  ModelApi* models_ = nullptr;
  QualityApi* quality_ = nullptr;
  std::atomic<NodeState> state_{NodeState::kLoading};
};

}  // namespace epic

#endif  // EPIC_SERVICES_NODE_API_GATE_H_
