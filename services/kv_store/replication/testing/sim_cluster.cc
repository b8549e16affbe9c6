#include "services/kv_store/replication/testing/sim_cluster.h"

#include <utility>

#include "common/base/check.h"

namespace epic::kv_store {
namespace {

std::vector<PlacedNode> NodesOf(const SimOptions& options) {
  std::vector<PlacedNode> nodes;
  for (size_t at = 0; at < options.nodes; ++at) {
    nodes.push_back({"node-" + std::to_string(at),
                     options.zones == 0 ? "" : "zone-" + std::to_string(at % options.zones)});
  }
  return nodes;
}

}  // namespace

bool SimExecutor::RunOne() {
  if (tasks_.empty()) return false;
  const size_t at = rng_->Below(tasks_.size());
  const std::function<void()> task = std::move(tasks_[at]);
  tasks_.erase(tasks_.begin() + static_cast<std::ptrdiff_t>(at));
  task();
  return true;
}

SimMembers::SimMembers(std::vector<PlacedNode> nodes, std::string leader) : seen_(nodes.size(), 0) {
  auto view = std::make_shared<MemberView>();
  for (PlacedNode& node : nodes) view->members.push_back({.node = std::move(node)});
  view->leader = std::move(leader);
  views_.push_back(std::move(view));
}

MemberView SimMembers::Next() const {
  MemberView view = *views_.back();
  ++view.epoch;
  return view;
}

void SimMembers::Announce(size_t node, NodeUp up, uint64_t session) {
  MemberView view = Next();
  Member& member = view.members[node];
  // What was announced under a session that is over comes to nothing.
  if (up == NodeUp::kServing && (member.session != session || member.up == NodeUp::kDown)) return;
  // A new session ends the one before, for the node itself at once.
  const bool new_session = member.session != session;
  member.up = up;
  member.session = session;
  views_.push_back(std::make_shared<const MemberView>(std::move(view)));
  if (new_session) seen_[node] = views_.size() - 1;
}

void SimMembers::ShowDown(size_t node) {
  MemberView view = Next();
  view.members[node].up = NodeUp::kDown;
  views_.push_back(std::make_shared<const MemberView>(std::move(view)));
  seen_[node] = views_.size() - 1;
}

void SimMembers::Lead(const std::string& leader) {
  if (views_.back()->leader == leader) return;
  MemberView view = Next();
  for (size_t at = 0; at < view.members.size(); ++at) {
    // The one before sees first that it is over.
    if (view.members[at].node.name == view.leader) seen_[at] = views_.size();
  }
  view.leader = leader;
  views_.push_back(std::make_shared<const MemberView>(std::move(view)));
}

class SimCluster::SkewedClock final : public Clock {
 public:
  SkewedClock(const Clock* clock, int64_t skew_ms) : clock_(clock), skew_ms_(skew_ms) {}
  int64_t UnixMs() const override { return clock_->UnixMs() + skew_ms_; }
  int64_t SteadyNs() const override { return clock_->SteadyNs(); }

 private:
  const Clock* const clock_;
  const int64_t skew_ms_;
};

class SimCluster::Seen final : public Membership {
 public:
  Seen(SimMembers* members, size_t node) : members_(members), node_(node) {}
  std::shared_ptr<const MemberView> View() const override { return members_->ViewOf(node_); }
  void Announce(NodeUp up, uint64_t session) override { members_->Announce(node_, up, session); }

 private:
  SimMembers* const members_;
  const size_t node_;
};

SimCluster::SimCluster(uint64_t seed, const SimOptions& options)
    : options_(options),
      rng_(seed),
      network_(seed + 1, &timers_, &clock_),
      members_(NodesOf(options), "node-0"),
      nodes_(options.nodes) {
  for (size_t at = 0; at < nodes_.size(); ++at) {
    Node& node = nodes_[at];
    node.name = "node-" + std::to_string(at);
    const auto skews = static_cast<uint64_t>(2 * options.most_skew_ms + 1);
    node.clock = std::make_unique<SkewedClock>(
        &clock_, static_cast<int64_t>(rng_.Below(skews)) - options.most_skew_ms);
    node.seen = std::make_unique<Seen>(&members_, at);
    node.disk = std::make_shared<MemoryDisk>();
    node.inlet = std::make_shared<LocalPeer>();
  }
}

SimCluster::~SimCluster() {
  for (Node& node : nodes_) node.replicator.reset();
}

ReplicatorOptions SimCluster::OptionsOf(const std::string& name, size_t replicas) {
  ReplicatorOptions options;
  options.name = name;
  options.placement.replicas = replicas;
  options.call_timeout_ms = 200;
  options.change_timeout_ms = 600;
  options.erase_timeout_ms = 600;
  options.retry_ms = 40;
  options.beat_ms = 1500;
  options.away_beats = 3;
  options.change_beats = 2;
  options.tombstone_beats = 7;
  options.page = 2;
  options.page_bytes = 64;
  options.repaired_per_s = 20;
  return options;
}

bool SimCluster::Serves(size_t node) const {
  return IsAlive(node) && nodes_[node].replicator->StandingNow().up == NodeUp::kServing;
}

bool SimCluster::IsEmpty(size_t node) const {
  return IsAlive(node) && nodes_[node].replicator->StandingNow().empty;
}

void SimCluster::Start(size_t at) {
  Node& node = nodes_[at];
  EPIC_CHECK(node.replicator == nullptr);
  StoreOptions options{
      .memory_bytes = 1 << 16, .clock = node.clock.get(), .writer = {.period_ms = 1'000'000'000}};
  options.forgets_tombstones = false;
  auto store = StoreCore::Open(std::make_unique<MemoryTableStore>(node.disk), options);
  EPIC_CHECK(store.ok());
  node.store = *std::move(store);
  ReplicatorDeps deps{.store = node.store.get(),
                      .membership = node.seen.get(),
                      .executor = &executor_,
                      .timers = &timers_,
                      .clock = node.clock.get(),
                      .peers = {},
                      .seed = rng_.Next()};
  for (size_t to = 0; to < nodes_.size(); ++to) {
    const Node& other = nodes_[to];
    if (to == at) continue;
    std::shared_ptr<ReplicaPeer> way = other.inlet;
    if (options_.way) way = options_.way(to, std::move(way));
    deps.peers[other.name] = std::make_shared<FaultyPeer>(node.name, other.name, std::move(way), &network_);
  }
  auto replicator = Replicator::Open(OptionsOf(node.name, options_.replicas), deps);
  EPIC_CHECK(replicator.ok());
  node.replicator = *std::move(replicator);
  node.inlet->Bind(node.replicator);
  node.replicator->Start();
}

void SimCluster::Crash(size_t at) {
  Node& node = nodes_[at];
  node.replicator.reset();
  node.store.reset();
  node.disk->Crash(&rng_);
}

void SimCluster::LoseDisk(size_t at) {
  EPIC_CHECK(!IsAlive(at));
  nodes_[at].disk = std::make_shared<MemoryDisk>();
}

void SimCluster::ShowDown(size_t at) {
  // That takes longer than clocks differ.
  Advance(2 * options_.most_skew_ms + 1);
  members_.ShowDown(at);
  if (IsAlive(at)) nodes_[at].replicator->ViewChanged();
}

void SimCluster::Drain() {
  while (executor_.RunOne()) {
  }
}

bool SimCluster::CatchUp(size_t node) {
  if (!members_.Lags(node)) return false;
  members_.CatchUp(node);
  if (IsAlive(node)) nodes_[node].replicator->ViewChanged();
  return true;
}

void SimCluster::Pass(int64_t ms) {
  PassUntil(ms, [] { return false; });
}

bool SimCluster::PassUntil(int64_t ms, size_t laggard, const std::function<bool()>& is_so) {
  for (int64_t passed = 0; passed <= ms; passed += 20) {
    for (size_t node = 0; node < nodes_.size(); ++node) {
      while (node != laggard && CatchUp(node)) {
      }
    }
    Drain();
    if (is_so()) return true;
    Advance(20);
  }
  return false;
}

}  // namespace epic::kv_store
