// The other process of ucx_process_test: serves objects, or reads them for ever. Spoken with over the
// standard streams, line by line.
//
//   epic_ucx_peer serve INCARNATION OBJECTS TOKENS
//       says "ready"; "ticket": says a ticket; "end N": ends a lease
//   epic_ucx_peer read INCARNATION OBJECTS TOKENS
//       says "ask" and is told a ticket or "none"; says "ok" or "no" for each fetch
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "common/transport/testing/end_of_fetch.h"
#include "common/transport/testing/test_source.h"
#include "common/transport/ucx/testing/text_door.h"
#include "common/transport/ucx/ucx_node.h"

namespace epic::transport {
namespace {

void Say(const std::string& line) {
  std::cout << line << std::endl;
  if (!std::cout.good()) std::_Exit(0);
}

int Serve(TestSource* source, const std::vector<std::shared_ptr<const Region>>& regions) {
  auto node = UcxNode::Start({.source = source});
  if (!node.ok()) return 1;
  Say("ready");
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line == "ticket") Say(ToHex(*(*node)->IssueTicket()));
    if (line.starts_with("end ")) source->EndLease(*regions.at(std::stoul(line.substr(4))));
  }
  return 0;
}

class StreamDoor final : public TicketSource {
 public:
  void Ask(std::function<void(absl::StatusOr<std::string>)> done) override {
    Say("ask");
    std::string line;
    if (!std::getline(std::cin, line)) std::_Exit(0);
    if (line == "none") return done(PathDownStatus("nobody there"));
    done(FromHex(line));
  }
};

int Read(const TestSource& source, const std::vector<std::shared_ptr<const Region>>& regions) {
  auto node = UcxNode::Start({});
  if (!node.ok()) return 1;
  const auto path = (*node)->MakePath(std::make_shared<StreamDoor>(), {});
  for (size_t i = 0;; ++i) {
    const auto& region = regions[i % regions.size()];
    FetchRequest request{.region = region,
                         .deadline_steady_ns = SystemClock::Get()->SteadyNs() + 10'000'000'000};
    std::vector<std::vector<std::byte>> buffers(region->layout.layers);
    for (uint32_t layer = 0; layer < region->layout.layers; ++layer) {
      buffers[layer].resize(region->layout.LayerBytes());
      request.ranges.push_back({.layer = layer, .to = buffers[layer]});
    }
    const auto ending = std::make_shared<EndOfFetch>();
    path->Fetch(std::move(request), ending);
    const bool ok = ending->Wait().ok();
    for (uint32_t layer = 0; ok && layer < region->layout.layers; ++layer) {
      const ByteSpan right = source.Bytes(*region, layer);
      if (!std::equal(right.begin(), right.end(), buffers[layer].begin())) Say("wrong");
    }
    Say(ok ? "ok" : "no");
  }
}

}  // namespace
}  // namespace epic::transport

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  epic::transport::TestSource source(std::stoull(argv[2]));
  std::vector<std::shared_ptr<const epic::transport::Region>> regions;
  for (uint64_t i = 0; i < std::stoull(argv[3]); ++i) {
    regions.push_back(
        source.Put(i + 1, epic::transport::SmallLayout(4, static_cast<uint32_t>(std::stoul(argv[4])))));
  }
  return std::string(argv[1]) == "serve" ? epic::transport::Serve(&source, regions)
                                         : epic::transport::Read(source, regions);
}
