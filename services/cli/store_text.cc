#include "services/cli/store_text.h"

#include <cstdio>
#include <ctime>
#include <set>
#include <string_view>

#include "common/storage/names.h"

namespace epic {
namespace {

using nlohmann::json;

constexpr int64_t kShowEveryNs = 2'000'000'000;

template <typename T>
json OrNull(const std::optional<T>& value) {
  return value.has_value() ? json(*value) : json();
}

json TimeJson(const HybridTime& time) { return {{"unix_ms", time.unix_ms}, {"counter", time.counter}}; }

json TombstoneJson(const store_tools::Tombstone& tombstone) {
  const bool deleted = tombstone.cause == store_tools::RemovalCause::kDeleted;
  return {{"cause", deleted ? "deleted" : "expired"}, {"at", TimeJson(tombstone.at)},
          {"deleted", TimeJson(tombstone.deleted)},   {"expired_life", TimeJson(tombstone.expired_life)},
          {"expired", TimeJson(tombstone.expired)},   {"created_at_ms", OrNull(tombstone.created_at_ms)}};
}

json ObjectJson(const store_tools::ObjectEntry& object) {
  const KvLayout& layout = object.head.layout;
  json where = json::array();
  for (const store_tools::SlabExtent& extent : object.extents) {
    where.push_back({{"file", extent.file}, {"page", extent.page}, {"pages", extent.pages}});
  }
  return {{"variant", object.head.variant.Hex()},
          {"number", object.number},
          {"build", object.head.build.Hex()},
          {"bytes", layout.TotalBytes()},
          {"layers", layout.layers},
          {"kv_heads", layout.kv_heads},
          {"head_dim", layout.head_dim},
          {"tokens", layout.tokens},
          {"dtype", layout.dtype == KvDtype::kF32 ? "f32" : "bf16"},
          {"where", object.extents.empty() ? json("rows") : std::move(where)}};
}

json RecordJson(const ContextRecord& record, bool with_names) {
  json out = {{"state", NameOf(record.state)},
              {"model", record.model},
              {"model_identity", record.model_identity.Hex()},
              {"hidden", record.hidden},
              {"created_at_ms", record.created_at_ms},
              {"created", TimeJson(record.created)},
              {"ttl_seconds", OrNull(record.ttl_seconds)},
              {"expires_at_ms", OrNull(record.expires_at_ms)},
              {"pin", NameOf(record.pin)},
              {"pin_until_ms", OrNull(record.pin_until_ms)},
              {"durability", NameOf(record.durability)},
              {"has_name", !record.name.empty()},
              {"tags", record.tags.size()},
              {"tokens", record.token_count},
              {"hits", record.hits},
              {"last_used_at_ms", record.last_used_at_ms}};
  if (with_names) {
    out["name"] = record.name;
    out["tag_names"] = record.tags;
    out["error"] = record.error;
  }
  return out;
}

std::string TextOf(int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm parts = {};
  char text[32] = "";
  if (gmtime_r(&seconds, &parts) != nullptr)
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

}  // namespace

json FaultJson(const store_tools::StoreFault& fault) {
  const auto& info = store_tools::InfoOf(fault.kind);
  return {
      {"table", fault.table},   {"key", fault.table == "extents" ? fault.key : store_tools::Hex(fault.key)},
      {"kind", info.name},      {"damage", info.is_damage},
      {"detail", fault.detail}, {"what_to_do", info.advice}};
}

void PrintFault(std::ostream& out, const store_tools::StoreFault& fault) {
  const auto& info = store_tools::InfoOf(fault.kind);
  out << info.name << "  " << fault.table << "  "
      << (fault.table == "extents" ? fault.key : store_tools::Hex(fault.key)) << "  " << fault.detail << '\n';
}

json ReportJson(const store_tools::StoreReport& report) {
  const store_tools::StoreCounts& counts = report.counts;
  json faults = json::array();
  for (const store_tools::StoreFault& fault : report.faults) faults.push_back(FaultJson(fault));
  return {{"sound", report.damage == 0},
          {"complete", report.complete},
          {"deep", report.deep},
          {"damage", report.damage},
          {"left_over", report.left_over},
          {"faults_not_listed", report.damage + report.left_over - report.faults.size()},
          {"counts",
           {{"records", counts.records},
            {"hidden_records", counts.hidden_records},
            {"token_rows", counts.token_rows},
            {"tokens", counts.tokens},
            {"tombstones", counts.tombstones},
            {"node_rows", counts.node_rows},
            {"objects", counts.objects},
            {"objects_in_extents", counts.objects_in_extents},
            {"object_bytes", counts.object_bytes},
            {"verified_bytes", counts.verified_bytes},
            {"extent_files", counts.extent_files},
            {"extent_bytes", counts.extent_bytes},
            {"table_bytes", counts.table_bytes}}},
          {"faults", std::move(faults)}};
}

void PrintReport(std::ostream& out, const std::string& dir, const store_tools::StoreReport& report) {
  const store_tools::StoreCounts& counts = report.counts;
  out << counts.records << " records (" << counts.hidden_records << " hidden), " << counts.tokens
      << " token ids, " << counts.tombstones << " tombstones\n"
      << counts.objects << " objects of " << counts.object_bytes << " bytes, " << counts.objects_in_extents
      << " of them in " << counts.extent_files << " extent files; "
      << (report.deep ? std::to_string(counts.verified_bytes) + " bytes compared with their checksums"
                      : std::string("their bytes were not read (--no-deep)"))
      << '\n';
  std::set<std::string_view> kinds;
  for (const store_tools::StoreFault& fault : report.faults) {
    PrintFault(out, fault);
    kinds.insert(store_tools::InfoOf(fault.kind).name);
  }
  const uint64_t not_listed = report.damage + report.left_over - report.faults.size();
  if (not_listed > 0) out << "and " << not_listed << " more\n";
  for (const std::string_view kind : kinds) {
    for (const store_tools::StoreFault& fault : report.faults) {
      const auto& info = store_tools::InfoOf(fault.kind);
      if (info.name != kind) continue;
      out << "what to do about " << kind << ": " << info.advice << '\n';
      break;
    }
  }
  if (!report.complete) out << "not everything could be read\n";
  out << dir << ": " << (report.damage == 0 ? "sound" : std::to_string(report.damage) + " faults");
  if (report.left_over > 0) out << ", " << report.left_over << " left over";
  out << '\n';
}

json ContextJson(const store_tools::DumpedContext& context, bool with_names) {
  const auto& [record, tombstone] = context.state;
  json out = {{"tenant", context.key.tenant}, {"id", context.key.id.text()}};
  if (record.has_value()) {
    out.update(RecordJson(*record, with_names));
    if (tombstone.has_value()) out["removed"] = !store_tools::Counts(*record, *tombstone);
  } else {
    out["state"] = tombstone->cause == store_tools::RemovalCause::kDeleted ? "deleted" : "expired";
  }
  out["tombstone"] = tombstone.has_value() ? TombstoneJson(*tombstone) : json();
  out["objects"] = json::array();
  for (const store_tools::ObjectEntry& object : context.objects) out["objects"].push_back(ObjectJson(object));
  if (context.tokens.has_value()) out["token_ids"] = *context.tokens;
  return out;
}

json SummaryJson(const store_tools::BackupSummary& summary) {
  return {{"created_at_ms", summary.header.created_at_ms},
          {"contexts", summary.counts.live},
          {"gone", summary.counts.gone},
          {"tokens", summary.counts.tokens},
          {"bytes", summary.bytes}};
}

void PrintSummary(std::ostream& out, const std::string& file, const store_tools::BackupSummary& summary) {
  out << file << ": " << summary.counts.live << " contexts of " << summary.counts.tokens << " tokens, "
      << summary.counts.gone << " that are gone, " << summary.bytes << " bytes, made "
      << TextOf(summary.header.created_at_ms) << '\n';
}

void ProgressLine::Show(const std::string& text) {
  const int64_t now_ns = clock_->SteadyNs();
  if (now_ns - last_ns_ < kShowEveryNs) return;
  last_ns_ = now_ns;
  *out_ << text << std::endl;
}

absl::Status Isolated(const Console& console, const std::function<absl::Status()>& work) {
  console.out->flush();
  console.err->flush();
  return store_tools::RunStatusIsolated([&] {
    const absl::Status status = work();
    console.out->flush();
    console.err->flush();
    return status;
  });
}

}  // namespace epic
