#include "common/transport/ucx/piece_server.h"

#include <utility>

#include "common/base/check.h"
#include "common/transport/ucx/piece_plan.h"

namespace epic::transport {
namespace {

constexpr int64_t kLookNs = 500'000'000;

}  // namespace

// One lane. Ended by the server; answers that come later find its number gone.
class PieceServer::Session final : public LaneEvents {
 public:
  Session(PieceServer* server, uint64_t id, Lane* lane)
      : server_(server), id_(id), lane_(lane), heard_ns_(server->clock_->SteadyNs()) {}

  void OnMessage(uint8_t kind, ByteSpan header, IncomingBody& body) override;
  void OnDown(const absl::Status&) override { server_->End(id_); }
  void Close() {
    fetches_.clear();
    std::exchange(lane_, nullptr)->Close();
  }
  void OnLayerReady(uint64_t fetch, uint32_t layer, const absl::Status& status);
  void OnPieceSent(uint64_t send) { sends_.erase(send); }
  void OnAnswerSent() { answers_ -= 1; }
  bool has_limits() const { return !admitted_ || !sends_.empty() || !fetches_.empty(); }
  bool IsLate(int64_t now_ns) const;

 private:
  // Each: false when the message cannot be.
  bool Take(wire::Kind kind, ByteSpan header);
  bool TakeHello(ByteSpan header);
  bool TakeOpen(ByteSpan header);
  bool TakeWait(ByteSpan header);
  bool TakeRead(ByteSpan header);
  bool TakeConfirm(ByteSpan header);
  bool TakeEnd(ByteSpan header);
  bool TakePing(ByteSpan header);
  bool WaitForLayers(uint64_t id, const std::vector<uint32_t>& layers);
  wire::Piece AnswerRead(const wire::Read& read, std::shared_ptr<SourceObject>* object,
                         ByteSpan* bytes) const;
  void Answer(wire::Kind kind, std::string header);

  PieceServer* const server_;
  const uint64_t id_;
  Lane* lane_;
  int64_t heard_ns_;  // the last word, or the beginning
  bool admitted_ = false;
  std::map<uint64_t, OpenFetch> fetches_;
  std::map<uint64_t, int64_t> sends_;  // pieces that the lane has not taken -> since when
  uint64_t next_send_ = 1;
  uint32_t answers_ = 0;  // others that it has not taken
};

bool PieceServer::Session::IsLate(int64_t now_ns) const {
  const PieceServerOptions& options = server_->options_;
  const int64_t silent_ns = now_ns - heard_ns_;
  if (!admitted_) return silent_ns >= options.hello_timeout_ms * 1'000'000;
  if (!fetches_.empty() && silent_ns >= options.silence_timeout_ms * 1'000'000) return true;
  return !sends_.empty() && now_ns - sends_.begin()->second >= options.send_timeout_ms * 1'000'000;
}

void PieceServer::Session::OnMessage(uint8_t kind, ByteSpan header, IncomingBody& body) {
  if (lane_ == nullptr) return;
  heard_ns_ = server_->clock_->SteadyNs();
  const bool is_hello = kind == static_cast<uint8_t>(wire::Kind::kHello);
  if (body.size() != 0 || is_hello == admitted_ || !Take(static_cast<wire::Kind>(kind), header) ||
      answers_ > server_->options_.max_answers) {
    server_->End(id_);
  }
}

bool PieceServer::Session::Take(wire::Kind kind, ByteSpan header) {
  switch (kind) {
    case wire::Kind::kHello:
      return TakeHello(header);
    case wire::Kind::kOpen:
      return TakeOpen(header);
    case wire::Kind::kWait:
      return TakeWait(header);
    case wire::Kind::kRead:
      return TakeRead(header);
    case wire::Kind::kConfirm:
      return TakeConfirm(header);
    case wire::Kind::kEnd:
      return TakeEnd(header);
    case wire::Kind::kPing:
      return TakePing(header);
    default:
      return false;
  }
}

void PieceServer::Session::Answer(wire::Kind kind, std::string header) {
  answers_ += 1;
  lane_->Send(static_cast<uint8_t>(kind), std::move(header), {}, MemoryKind::kHost,
              [server = server_, id = id_](const absl::Status&) {
                const auto found = server->sessions_.find(id);
                if (found != server->sessions_.end()) found->second->OnAnswerSent();
              });
}

bool PieceServer::Session::TakeHello(ByteSpan header) {
  const auto hello = wire::DecodeHello(header);
  if (!hello.has_value() || !server_->tickets_->Redeem(hello->secret)) return false;
  admitted_ = true;
  Answer(wire::Kind::kWelcome, wire::Encode(wire::Welcome{.incarnation = server_->source_->incarnation()}));
  return true;
}

bool PieceServer::Session::TakeOpen(ByteSpan header) {
  const auto open = wire::DecodeOpen(header);
  if (!open.has_value() || fetches_.contains(open->fetch)) return false;
  absl::StatusOr<std::shared_ptr<SourceObject>> object = PathDownStatus("too many fetches of one reader");
  if (fetches_.size() < server_->options_.max_fetches) object = server_->source_->Open(open->lease);
  if (!object.ok()) {
    Answer(wire::Kind::kLayer,
           wire::Encode(wire::Layer{
               .fetch = open->fetch, .layer = wire::Layer::kAllLayers, .status = object.status()}));
    return true;
  }
  fetches_[open->fetch].object = *std::move(object);
  server_->LookLater();
  return WaitForLayers(open->fetch, open->layers);
}

bool PieceServer::Session::TakeWait(ByteSpan header) {
  const auto wait = wire::DecodeWait(header);
  // A fetch that could not be opened is not known; its reader has heard why.
  return wait.has_value() && (!fetches_.contains(wait->fetch) || WaitForLayers(wait->fetch, wait->layers));
}

bool PieceServer::Session::WaitForLayers(uint64_t id, const std::vector<uint32_t>& layers) {
  OpenFetch& fetch = fetches_.at(id);
  for (const uint32_t layer : layers) {
    if (layer >= fetch.object->layout().layers || fetch.layers.contains(layer)) return false;
    fetch.layers[layer] = false;
    // May be called on any thread, and after everything but the loop is gone.
    fetch.object->WhenLayer(layer, [loop = server_->loop_, server = server_, session = id_, id,
                                    layer](const absl::Status& status) {
      loop->Post([server, session, id, layer, status] { server->OnLayerReady(session, id, layer, status); });
    });
  }
  return true;
}

void PieceServer::Session::OnLayerReady(uint64_t fetch, uint32_t layer, const absl::Status& status) {
  const auto found = fetches_.find(fetch);
  if (found == fetches_.end()) return;
  wire::Layer message{.fetch = fetch, .layer = layer, .status = status};
  if (status.ok()) {
    found->second.layers[layer] = true;
    const ByteSpan bytes = found->second.object->Layer(layer);
    message.size = bytes.size();
    if (lane_->has_rma()) message.address = reinterpret_cast<uintptr_t>(bytes.data());
  }
  Answer(wire::Kind::kLayer, wire::Encode(message));
}

wire::Piece PieceServer::Session::AnswerRead(const wire::Read& read, std::shared_ptr<SourceObject>* object,
                                             ByteSpan* bytes) const {
  wire::Piece piece{.request = read.request,
                    .layer = read.layer,
                    .offset = read.offset,
                    .length = read.length,
                    .incarnation = server_->source_->incarnation()};
  const auto fetch = fetches_.find(read.fetch);
  if (fetch == fetches_.end()) {
    piece.status = absl::InvalidArgumentError("no such fetch");
    return piece;
  }
  const auto layer = fetch->second.layers.find(read.layer);
  if (layer == fetch->second.layers.end() || !layer->second) {
    piece.status = absl::InvalidArgumentError("a layer that is not there yet");
    return piece;
  }
  *object = fetch->second.object;
  const auto blocks = BlocksOf((*object)->layout(), read.offset, read.length);
  if (!blocks.has_value()) {
    piece.status = absl::InvalidArgumentError("a piece that is not whole blocks");
    return piece;
  }
  const ByteSpan slab = (*object)->Layer(read.layer);
  const std::span<const uint32_t> crcs = (*object)->LayerCrcs(read.layer);
  if (slab.size() < read.offset + read.length || crcs.size() < blocks->first + blocks->count) {
    piece.status = DamagedStatus(read.layer);
    return piece;
  }
  const auto own = crcs.subspan(blocks->first, blocks->count);
  piece.crcs.assign(own.begin(), own.end());
  if (!read.sums_only) *bytes = slab.subspan(read.offset, read.length);
  return piece;
}

bool PieceServer::Session::TakeRead(ByteSpan header) {
  const auto read = wire::DecodeRead(header);
  if (!read.has_value() || sends_.size() >= server_->options_.max_reads) return false;
  std::shared_ptr<SourceObject> object;
  ByteSpan bytes;
  std::string answer = wire::Encode(AnswerRead(*read, &object, &bytes));
  if (bytes.empty()) {
    Answer(wire::Kind::kPiece, std::move(answer));
    return true;
  }
  const uint64_t send = next_send_++;
  sends_[send] = server_->clock_->SteadyNs();
  server_->LookLater();
  lane_->Send(static_cast<uint8_t>(wire::Kind::kPiece), std::move(answer), bytes, MemoryKind::kHost,
              [server = server_, id = id_, send, object = std::move(object),
               size = bytes.size()](const absl::Status& status) {
                if (status.ok() && server->options_.on_sent) server->options_.on_sent(size);
                server->OnPieceSent(id, send);
              });
  return true;
}

bool PieceServer::Session::TakeConfirm(ByteSpan header) {
  const auto confirm = wire::DecodeConfirm(header);
  if (!confirm.has_value()) return false;
  const auto found = fetches_.find(confirm->fetch);
  const bool held = found != fetches_.end() && found->second.object->StillLeased();
  if (found != fetches_.end()) fetches_.erase(found);
  Answer(wire::Kind::kConfirmed, wire::Encode(wire::Confirmed{.fetch = confirm->fetch, .held = held}));
  return true;
}

bool PieceServer::Session::TakeEnd(ByteSpan header) {
  const auto end = wire::DecodeEnd(header);
  if (end.has_value()) fetches_.erase(end->fetch);
  return end.has_value();
}

bool PieceServer::Session::TakePing(ByteSpan header) {
  const auto ping = wire::DecodePing(header);
  if (ping.has_value()) Answer(wire::Kind::kPong, wire::Encode(wire::Pong{.number = ping->number}));
  return ping.has_value();
}

PieceServer::PieceServer(KvSource* source, TicketBook* tickets, const Clock* clock,
                         PieceServerOptions options)
    : source_(source), tickets_(tickets), clock_(clock), options_(options) {}

PieceServer::~PieceServer() = default;

void PieceServer::AttachTo(std::shared_ptr<Loop> loop) { loop_ = std::move(loop); }

LaneEvents* PieceServer::OnLane(Lane* lane) {
  if (loop_ == nullptr || sessions_.size() >= options_.max_sessions) return nullptr;
  const uint64_t id = next_session_++;
  auto session = std::make_unique<Session>(this, id, lane);
  LaneEvents* const events = session.get();
  sessions_.emplace(id, std::move(session));
  LookLater();
  return events;
}

void PieceServer::End(uint64_t session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  std::unique_ptr<Session> ended = std::move(found->second);
  sessions_.erase(found);
  ended->Close();
  // It may be ended out of one of its own calls.
  loop_->Post([ended = std::shared_ptr<Session>(std::move(ended))] {});
}

void PieceServer::Close() {
  while (!sessions_.empty()) End(sessions_.begin()->first);
  loop_ = nullptr;
}

void PieceServer::OnLayerReady(uint64_t session, uint64_t fetch, uint32_t layer, const absl::Status& status) {
  const auto found = sessions_.find(session);
  if (found != sessions_.end()) found->second->OnLayerReady(fetch, layer, status);
}

void PieceServer::OnPieceSent(uint64_t session, uint64_t send) {
  const auto found = sessions_.find(session);
  if (found != sessions_.end()) found->second->OnPieceSent(send);
}

void PieceServer::LookLater() {
  if (look_due_) return;
  look_due_ = true;
  loop_->At(clock_->SteadyNs() + kLookNs, [this] { Look(); });
}

void PieceServer::Look() {
  look_due_ = false;
  const int64_t now_ns = clock_->SteadyNs();
  std::vector<uint64_t> late;
  bool limits = false;
  for (const auto& [id, session] : sessions_) {
    if (session->IsLate(now_ns)) {
      late.push_back(id);
    } else {
      limits = limits || session->has_limits();
    }
  }
  for (const uint64_t id : late) End(id);
  if (limits) LookLater();
}

}  // namespace epic::transport
