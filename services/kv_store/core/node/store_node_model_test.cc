// Random calls of writers and readers against a node and against a small model of what it promises: every
// answer is the model's, every byte read is what was committed, and late bytes land nowhere. Time moves by
// hand. In every other run memory is short, so that objects are evicted and calls may find no room. Prints
// the first seed; a failure says its own.
#include <algorithm>
#include <cstdio>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "common/status/error.h"
#include "services/kv_store/core/node/store_node_fixture.h"

namespace epic::kv_store {
namespace {

constexpr int kSteps = 400;
constexpr uint64_t kKeys = 4;
constexpr uint64_t kPeers = 3;
constexpr int64_t kTimeoutMs = 30'000;
constexpr int64_t kRememberedMs = 600'000;
constexpr size_t kMaxFills = 4;

// nullopt: OK.
std::optional<ErrorCode> CodeIfAny(const absl::Status& status) {
  return status.ok() ? std::nullopt : std::optional(CodeOf(status));
}

// What the node promises about tokens, told once more and as simply as can be.
class TokensModel {
 public:
  struct Token {
    uint64_t key = 0;
    PeerId peer = 0;
    uint64_t seed = 0;
    int64_t last_sign_ms = 0;
    int64_t since_ms = 0;
    std::vector<int> layers;  // 0 nothing, 1 being filled, 2 arrived
    TokenState state = TokenState::kAlive;
    int64_t ended_ms = 0;
    bool forgotten = false;
  };

  explicit TokensModel(const ManualClock* clock) : clock_(clock) {}
  int64_t now() const { return clock_->SteadyNs() / 1'000'000; }

  Token& At(size_t token) { return tokens_[token]; }
  size_t size() const { return tokens_.size(); }
  void Add(Token token) {
    token.last_sign_ms = token.since_ms = now();
    tokens_.push_back(std::move(token));
  }
  // What the token is when somebody asks for it now.
  TokenState Ask(size_t index) {
    Token& token = tokens_[index];
    if (token.state == TokenState::kAlive && now() - token.last_sign_ms >= kTimeoutMs) {
      End(index, TokenState::kPreempted);
    }
    ForgetOld();
    return token.forgotten ? TokenState::kUnknown : token.state;
  }
  void End(size_t index, TokenState state) {
    if (state == TokenState::kPreempted) ++preempted_;
    tokens_[index].state = state;
    tokens_[index].ended_ms = now();
    ended_.push_back(index);
    ForgetOld();
  }
  std::optional<size_t> WriterOf(uint64_t key) {
    for (size_t index = 0; index < tokens_.size(); ++index) {
      if (tokens_[index].state != TokenState::kAlive || tokens_[index].key != key) continue;
      if (Ask(index) == TokenState::kAlive) return index;
    }
    return std::nullopt;
  }
  size_t AliveAsTold() const {
    return static_cast<size_t>(std::count_if(tokens_.begin(), tokens_.end(), [](const Token& token) {
      return token.state == TokenState::kAlive;
    }));
  }
  void ForgetAll() {
    for (Token& token : tokens_) {
      if (token.state == TokenState::kAlive) token.state = TokenState::kAborted;
      token.forgotten = true;
    }
    ended_.clear();
    preempted_ = 0;
  }
  uint64_t preempted() const { return preempted_; }

 private:
  void ForgetOld() {
    while (!ended_.empty() && now() - tokens_[ended_.front()].ended_ms >= kRememberedMs) {
      tokens_[ended_.front()].forgotten = true;
      ended_.pop_front();
    }
  }

  const ManualClock* const clock_;
  std::vector<Token> tokens_;
  std::deque<size_t> ended_;
  uint64_t preempted_ = 0;
};

class StoreNodeModelTest : public StoreNodeFixture {
 protected:
  struct Fill {
    size_t token = 0;
    LayerFill memory;
    bool right = false;  // has the bytes of the token's seed
  };
  struct Lease {
    LeaseId id;
    PeerId peer = 0;
    uint64_t seed = 0;  // of the object
    int64_t end_ms = 0;
    bool over = false;
  };

  void Begin(uint64_t seed) {
    rng_.emplace(seed);
    short_of_memory_ = seed % 2 == 1;
    model_.emplace(&clock_);
    tokens_.clear();
    leases_.clear();
    stored_.clear();
    live_.clear();
    next_seed_ = 1;
    node_.reset();
    store_.reset();
    disk_ = std::make_shared<MemoryDisk>();
    Reopen();
    keys_.clear();
    for (uint64_t key = 0; key < kKeys; ++key) {
      keys_.push_back(Create(key));
      live_.insert(key);
    }
  }
  void Reopen() {
    OpenStore(short_of_memory_ ? 5 * SlabFootprint(layout_) : kMemoryBytes);
    OpenNode({.reservations = {.remembered_ms = kRememberedMs}, .leases = {}});
  }
  int64_t now() const { return clock_.SteadyNs() / 1'000'000; }

  void Step() {
    switch (rng_->Below(20)) {
      case 0:
      case 1:
      case 2:
        return TryReserve();
      case 3:
      case 4:
      case 5:
        return TryBeginLayer();
      case 6:
      case 7:
      case 8:
        return TryFinishLayer();
      case 9:
        return Scribble();
      case 10:
      case 11:
        return TryCommit();
      case 12:
        return rng_->Below(2) == 0 ? TryAbort() : TryHeartbeat();
      case 13:
        return TryHeartbeat();
      case 14:
      case 15:
        return TryAcquire();
      case 16:
      case 17:
        return TryLease();
      case 18:
        return PassTime();
      default:
        return Rare();
    }
  }

  // --- writers

  void TryReserve() {
    const uint64_t key = rng_->Below(kKeys);
    const PeerId peer = 1 + rng_->Below(kPeers);
    const auto writer = model_->WriterOf(key);
    const ReserveResult result = Reserve(keys_[key], "w" + std::to_string(peer), peer);
    if (writer.has_value()) {
      ASSERT_EQ(result.outcome, ReserveOutcome::kBusy);
      EXPECT_EQ(result.age_ms, now() - model_->At(*writer).since_ms);
      EXPECT_EQ(result.source, "w" + std::to_string(model_->At(*writer).peer));
    } else if (stored_.contains(key)) {
      EXPECT_EQ(result.outcome, ReserveOutcome::kExists) << result.status;
    } else if (!live_.contains(key)) {
      EXPECT_EQ(CodeIfAny(result.status), ErrorCode::kContextDeleted);
    } else if (result.outcome == ReserveOutcome::kReserved) {
      EXPECT_TRUE(seen_tokens_.insert(result.token).second);
      tokens_.push_back(result.token);
      model_->Add(
          {.key = key, .peer = peer, .seed = next_seed_++, .layers = std::vector<int>(layout_.layers)});
    } else {
      EXPECT_TRUE(short_of_memory_);
      EXPECT_EQ(CodeIfAny(result.status), ErrorCode::kStorageFull);
    }
    HearOfSweep();
  }
  // Where memory is short the node ends all that is overdue, as Sweep does.
  void HearOfSweep() {
    if (node_->reservation_counts().preempted == model_->preempted()) return;
    for (size_t token = 0; token < model_->size(); ++token) model_->Ask(token);
    EXPECT_EQ(node_->reservation_counts().preempted, model_->preempted());
  }
  std::optional<size_t> AnyToken() {
    if (tokens_.empty()) return std::nullopt;
    const size_t last = std::min<size_t>(tokens_.size(), rng_->Below(4) == 0 ? tokens_.size() : 4);
    return tokens_.size() - 1 - rng_->Below(last);
  }

  // What a call with a token that ended gets.
  ErrorCode EndedCode(size_t token) {
    const bool failed = model_->Ask(token) == TokenState::kFailed;
    return failed ? ErrorCode::kContextDeleted : ErrorCode::kReservationEnded;
  }
  void TryBeginLayer() {
    const auto token = AnyToken();
    if (!token.has_value() || fills_.size() >= kMaxFills) return;
    const auto layer = static_cast<uint32_t>(rng_->Below(layout_.layers));
    const bool alive = model_->Ask(*token) == TokenState::kAlive;
    auto fill = node_->BeginLayer(tokens_[*token], layer);
    TokensModel::Token& writer = model_->At(*token);
    if (!alive) {
      EXPECT_EQ(CodeIfAny(fill.status()), EndedCode(*token));
      return;
    }
    if (writer.layers[layer] != 0) {
      EXPECT_EQ(CodeIfAny(fill.status()), ErrorCode::kReservationConflict);
      return;
    }
    ASSERT_OK(fill);
    writer.layers[layer] = 1;
    writer.last_sign_ms = now();
    fills_.push_back({.token = *token, .memory = *std::move(fill)});
    if (rng_->Below(5) != 0) {
      Write(&fills_.back());
    } else {  // what another call left there must not pass for this one's
      std::memset(fills_.back().memory.bytes().data(), 0xaa, fills_.back().memory.bytes().size());
    }
  }
  void Write(Fill* fill) {
    const std::string slab = SlabOf(layout_, fill->memory.layer(), model_->At(fill->token).seed);
    std::memcpy(fill->memory.bytes().data(), slab.data(), slab.size());
    fill->right = true;
  }
  // Late bytes, of living and of ended tokens.
  void Scribble() {
    if (fills_.empty()) return;
    Fill& fill = *std::next(fills_.begin(), static_cast<ptrdiff_t>(rng_->Below(fills_.size())));
    std::memset(fill.memory.bytes().data(), static_cast<int>(rng_->Below(256)), fill.memory.bytes().size());
    fill.right = false;
    if (rng_->Below(2) == 0) Write(&fill);
  }
  void TryFinishLayer() {
    if (fills_.empty()) return;
    const auto at = std::next(fills_.begin(), static_cast<ptrdiff_t>(rng_->Below(fills_.size())));
    Fill fill = std::move(*at);
    fills_.erase(at);
    TokensModel::Token& writer = model_->At(fill.token);
    const uint32_t layer = fill.memory.layer();
    if (rng_->Below(8) == 0) {  // the transport gives up
      writer.layers[layer] = 0;
      return;
    }
    const bool alive = model_->Ask(fill.token) == TokenState::kAlive;
    const std::vector<uint32_t> crcs = SentObject(layout_, writer.seed).crcs[layer];
    const absl::Status status = node_->FinishLayer(std::move(fill.memory), crcs);
    if (!alive) {
      EXPECT_EQ(CodeIfAny(status), EndedCode(fill.token));
      return;
    }
    writer.last_sign_ms = now();
    writer.layers[layer] = fill.right ? 2 : 0;
    if (fill.right) {
      EXPECT_OK(status);
    } else {
      EXPECT_EQ(CodeIfAny(status), ErrorCode::kLayerDamaged);
    }
  }

  void TryCommit() {
    const auto token = AnyToken();
    if (!token.has_value()) return;
    TokensModel::Token& writer = model_->At(*token);
    const bool wrong = rng_->Below(10) == 0;
    const TokenState before = model_->Ask(*token);
    const absl::StatusOr<Committed> result = Commit(tokens_[*token], writer.seed + (wrong ? 1'000'000 : 0));
    switch (before) {
      case TokenState::kCommitted:
        ASSERT_OK(result);
        EXPECT_EQ(result->build, SentObject(layout_, writer.seed).build);
        return;
      case TokenState::kFailed:
        EXPECT_EQ(CodeIfAny(result.status()), ErrorCode::kContextDeleted);
        return;
      case TokenState::kAborted:
      case TokenState::kPreempted:
      case TokenState::kUnknown:
        EXPECT_EQ(CodeIfAny(result.status()), ErrorCode::kReservationEnded);
        return;
      case TokenState::kAlive:
        break;
    }
    writer.last_sign_ms = now();
    const bool whole = std::count(writer.layers.begin(), writer.layers.end(), 2) == layout_.layers;
    if (!whole || wrong) {
      EXPECT_EQ(CodeIfAny(result.status()), ErrorCode::kReservationConflict);
    } else if (!live_.contains(writer.key)) {
      EXPECT_EQ(CodeIfAny(result.status()), ErrorCode::kContextDeleted);
      model_->End(*token, TokenState::kFailed);
    } else {
      ASSERT_OK(result);
      EXPECT_TRUE(result->own);
      EXPECT_TRUE(generations_.insert(result->generation).second) << "a generation was given out twice";
      model_->End(*token, TokenState::kCommitted);
      stored_[writer.key] = writer.seed;
    }
  }
  void TryAbort() {
    const auto token = AnyToken();
    if (!token.has_value()) return;
    if (model_->Ask(*token) == TokenState::kAlive) model_->End(*token, TokenState::kAborted);
    EXPECT_EQ(Abort(tokens_[*token]), model_->Ask(*token));
  }
  void TryHeartbeat() {
    const auto token = AnyToken();
    if (!token.has_value()) return;
    const TokenState state = model_->Ask(*token);
    EXPECT_EQ(Heartbeat(tokens_[*token]), state);
    if (state == TokenState::kAlive) model_->At(*token).last_sign_ms = now();
  }

  // --- readers

  void TryAcquire() {
    const uint64_t key = rng_->Below(kKeys);
    const PeerId peer = 1 + rng_->Below(kPeers);
    const auto wanted_ms = static_cast<int64_t>(rng_->Below(60'000));
    EXPECT_EQ(Exists(keys_[key]).any(), stored_.contains(key));
    const LeaseResult result = Acquire(keys_[key], wanted_ms, peer);
    HearOfSweep();
    if (!stored_.contains(key)) {
      EXPECT_EQ(result.outcome, AcquireOutcome::kMiss);
      return;
    }
    if (result.outcome == AcquireOutcome::kMiss) {
      EXPECT_TRUE(short_of_memory_);
      EXPECT_EQ(result.cause, MissCause::kNoMemory);
      return;
    }
    ASSERT_EQ(result.outcome, AcquireOutcome::kLeased);
    EXPECT_TRUE(Holds(*result.object, stored_[key]));
    EXPECT_EQ(result.duration_ms, std::max<int64_t>(wanted_ms, 1000));
    EXPECT_TRUE(seen_leases_.insert(result.lease).second);
    leases_.push_back(
        {.id = result.lease, .peer = peer, .seed = stored_[key], .end_ms = now() + result.duration_ms});
  }
  void TryLease() {
    if (leases_.empty()) return;
    Lease& lease = leases_[rng_->Below(leases_.size())];
    const bool other_life = lease.id.incarnation != node_->incarnation();
    const LeaseState state = other_life                            ? LeaseState::kOtherLife
                             : lease.over || lease.end_ms <= now() ? LeaseState::kEnded
                                                                   : LeaseState::kHeld;
    switch (rng_->Below(5)) {
      case 0: {
        EXPECT_EQ(Confirm(lease.id, /*release=*/true, lease.peer), state);
        lease.over = true;
        return;
      }
      case 1: {
        EXPECT_EQ(node_->Renew(lease.peer, std::span(&lease.id, 1), 20'000).front(), state);
        if (state == LeaseState::kHeld) lease.end_ms = std::max(lease.end_ms, now() + 20'000);
        return;
      }
      case 2: {
        const LeaseState others = other_life ? LeaseState::kOtherLife : LeaseState::kEnded;
        EXPECT_EQ(Confirm(lease.id, /*release=*/true, lease.peer + 1), others);
        return;
      }
      default: {
        EXPECT_EQ(Confirm(lease.id, /*release=*/false, lease.peer), state);
        const auto object = node_->Read(lease.peer, lease.id);
        EXPECT_EQ(object.ok(), state == LeaseState::kHeld);
        if (object.ok()) {
          EXPECT_TRUE(Holds(**object, lease.seed));
        }
      }
    }
  }

  // --- what else happens

  void PassTime() {
    constexpr int64_t kSpans[] = {500, 3000, 15'000, kTimeoutMs - 1, kTimeoutMs, kRememberedMs / 2};
    clock_.AdvanceMs(kSpans[rng_->Below(std::size(kSpans))]);
  }
  void Rare() {
    const uint64_t key = rng_->Below(kKeys);
    switch (rng_->Below(6)) {
      case 0:
        node_->Sweep();
        HearOfSweep();
        if (fills_.empty()) {
          EXPECT_EQ(store_->Usage().reservations, model_->AliveAsTold());
        }
        return;
      case 1:
        return Leave(1 + rng_->Below(kPeers));
      case 2:
        ASSERT_OK(store_->DropObject(kTenant, keys_[key]));
        stored_.erase(key);
        return;
      case 3:
        ASSERT_OK(store_->DeleteContext(kTenant, keys_[key].id));
        live_.erase(key);
        stored_.erase(key);
        return;
      case 4:
        if (live_.insert(key).second) Create(key);
        return;
      default:
        if (rng_->Below(4) == 0) Restart();
    }
  }
  void Leave(PeerId peer) {
    node_->Goodbye(peer);
    for (size_t token = 0; token < model_->size(); ++token) {
      const TokensModel::Token& writer = model_->At(token);
      if (writer.state != TokenState::kAlive || writer.peer != peer) continue;
      if (model_->Ask(token) == TokenState::kAlive) model_->End(token, TokenState::kAborted);
    }
    for (Lease& lease : leases_) lease.over |= lease.peer == peer;
  }
  void Restart() {
    fills_.clear();
    store_->DrainWrites();
    Reopen();
    model_->ForgetAll();
  }
  void End() {
    fills_.clear();
    clock_.AdvanceMs(kTimeoutMs + 300'000);
    node_->Sweep();
    EXPECT_EQ(node_->lease_counts().held, 0u);
    EXPECT_EQ(node_->reservation_counts().open, 0u);
    EXPECT_EQ(store_->Usage().reservations, 0u);
    store_->DrainWrites();
    EXPECT_EQ(store_->Usage().leased_objects, 0u);
    for (uint64_t key = 0; key < kKeys; ++key) {
      const LeaseResult result = Acquire(keys_[key], 1000, key + 100);
      ASSERT_EQ(result.outcome == AcquireOutcome::kLeased, stored_.contains(key));
      EXPECT_TRUE(!stored_.contains(key) || Holds(*result.object, stored_[key]));
    }
  }

  std::optional<Rng> rng_;
  std::optional<TokensModel> model_;
  bool short_of_memory_ = false;
  uint64_t next_seed_ = 1;
  std::vector<ObjectKey> keys_;
  std::set<uint64_t> live_;
  std::map<uint64_t, uint64_t> stored_;  // key to the seed of its object
  std::vector<ReservationToken> tokens_;
  std::list<Fill> fills_;
  std::vector<Lease> leases_;
  std::set<ReservationToken> seen_tokens_;
  std::set<LeaseId> seen_leases_;
  std::set<Generation> generations_;
};

TEST_F(StoreNodeModelTest, RandomWritersAndReadersGetWhatTheModelSays) {
  const uint64_t first = std::random_device{}();
  std::printf("first seed %llu\n", static_cast<unsigned long long>(first));
  for (uint64_t seed = first; seed < first + 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Begin(seed);
    for (int step = 0; step < kSteps && !HasFailure(); ++step) Step();
    End();
    ASSERT_FALSE(HasFailure());
  }
}

}  // namespace
}  // namespace epic::kv_store
