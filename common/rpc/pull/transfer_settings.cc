#include "common/rpc/pull/transfer_settings.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/check.h"

namespace epic {
namespace {

using transport::PathKind;
using transport::TrafficClass;

std::vector<std::string> NamesIn(const std::string& text) {
  auto names = ParseNames(text);
  EPIC_CHECK(names.ok());
  return *std::move(names);
}

std::vector<PathKind> PathsOf(const TransportSettings& settings) {
  std::vector<PathKind> paths;
  for (const std::string& name : NamesIn(settings.paths)) {
    for (const PathKind kind : {PathKind::kShm, PathKind::kUcx, PathKind::kGrpc}) {
      if (NameOf(kind) == name) paths.push_back(kind);
    }
  }
  return paths;
}

}  // namespace

TransferOptions TransferOptionsOf(const TransportSettings& settings) {
  TransferOptions options;
  options.paths = PathsOf(settings);
  options.ucx = UcxSettingsOf(settings);
  options.ucx_pieces = static_cast<uint32_t>(settings.ucx_pieces);
  options.prefetch_bytes = static_cast<uint64_t>(settings.prefetch_bytes);
  transport::TrafficLimits& limits = options.limits;
  limits.in_flight_bytes = static_cast<uint64_t>(settings.in_flight_bytes);
  limits.bytes_per_s = static_cast<uint64_t>(settings.link_bytes);
  // A slow link has small buckets, so that what was not used does not come in one piece later.
  if (limits.bytes_per_s > 0) {
    limits.burst_bytes = std::clamp<uint64_t>(limits.bytes_per_s / 4, uint64_t{64} << 10, limits.burst_bytes);
  }
  limits.classes[static_cast<size_t>(TrafficClass::kWriteBehind)].reserve_bytes = limits.burst_bytes / 4;
  limits.classes[static_cast<size_t>(TrafficClass::kRepair)].reserve_bytes = limits.burst_bytes / 2;
  // Running requests may have all of it, the others half and a quarter.
  const auto set = [&](TrafficClass traffic, uint64_t share, int64_t bytes_per_s) {
    transport::ClassLimits& of_class = limits.classes[static_cast<size_t>(traffic)];
    of_class.in_flight_bytes = std::max<uint64_t>(limits.in_flight_bytes / share, 1);
    of_class.bytes_per_s = static_cast<uint64_t>(bytes_per_s);
  };
  set(TrafficClass::kFetch, 1, settings.fetch_bytes);
  set(TrafficClass::kWriteBehind, 2, settings.write_behind_bytes);
  set(TrafficClass::kRepair, 4, settings.repair_bytes);
  return options;
}

transport::UcxSettings UcxSettingsOf(const TransportSettings& settings) {
  transport::UcxSettings ucx;
  ucx.net_devices = NamesIn(settings.ucx_devices);
  ucx.listen_ip = settings.ucx_listen;
  ucx.trusted_network = settings.trusted_network;
  return ucx;
}

bool Names(const TransportSettings& settings, PathKind path) {
  const std::vector<PathKind> paths = PathsOf(settings);
  return std::find(paths.begin(), paths.end(), path) != paths.end();
}

}  // namespace epic
