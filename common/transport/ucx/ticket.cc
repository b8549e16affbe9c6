#include "common/transport/ucx/ticket.h"

#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/base/system_random.h"
#include "common/storage/byte_reader.h"

namespace epic::transport {
namespace {

constexpr uint32_t kMaxAddressBytes = 128;
constexpr uint32_t kMaxKeyBytes = 900;

void AppendText(std::string* out, std::string_view text) {
  AppendLittle<uint32_t>(out, static_cast<uint32_t>(text.size()));
  out->append(text);
}

// In a time that tells nothing about where they differ.
bool Same(const wire::Secret& a, const wire::Secret& b) {
  auto different = std::byte{0};
  for (size_t i = 0; i < a.size(); ++i) different |= a[i] ^ b[i];
  return different == std::byte{0};
}

}  // namespace

std::string EncodeTicket(const Ticket& ticket) {
  EPIC_CHECK(ticket.address.size() <= kMaxAddressBytes && ticket.regions.size() <= Ticket::kMaxRegions);
  std::string out;
  AppendLittle<uint32_t>(&out, wire::kMagic);
  AppendLittle<uint16_t>(&out, wire::kVersion);
  AppendLittle<uint64_t>(&out, ticket.incarnation);
  AppendText(&out, ticket.address);
  AppendLittle<uint8_t>(&out, ticket.rma ? 1 : 0);
  out.append(AsText(ticket.secret));
  AppendLittle<uint32_t>(&out, static_cast<uint32_t>(ticket.regions.size()));
  for (const TicketRegion& region : ticket.regions) {
    EPIC_CHECK(region.key.size() <= kMaxKeyBytes);
    AppendLittle<uint64_t>(&out, region.address);
    AppendLittle<uint64_t>(&out, region.size);
    AppendText(&out, region.key);
  }
  EPIC_CHECK(out.size() <= Ticket::kMaxBlobBytes);
  return out;
}

absl::StatusOr<Ticket> DecodeTicket(std::string_view blob) {
  const absl::Status wrong = absl::InvalidArgumentError("the peer's ticket for a UCX lane makes no sense");
  if (blob.size() > Ticket::kMaxBlobBytes) return wrong;
  ByteReader reader(AsBytes(blob));
  if (reader.Take<uint32_t>() != wire::kMagic || reader.Take<uint16_t>() != wire::kVersion) return wrong;
  Ticket ticket;
  ticket.incarnation = reader.Take<uint64_t>();
  ticket.address = reader.TakeText(kMaxAddressBytes);
  ticket.rma = reader.TakeBool();
  const ByteSpan secret = reader.TakeBytes(ticket.secret.size());
  if (reader.ok()) std::memcpy(ticket.secret.data(), secret.data(), secret.size());
  for (uint32_t left = reader.TakeUpTo<uint32_t>(Ticket::kMaxRegions); left > 0 && reader.ok(); --left) {
    TicketRegion region;
    region.address = reader.Take<uint64_t>();
    region.size = reader.Take<uint64_t>();
    region.key = reader.TakeText(kMaxKeyBytes);
    if (region.size == 0 || region.address + region.size < region.address) reader.Fail();
    ticket.regions.push_back(std::move(region));
  }
  if (!reader.AtEnd() || (!ticket.rma && !ticket.regions.empty())) return wrong;
  return ticket;
}

TicketBook::TicketBook(const Clock* clock, int64_t lifetime_ms, size_t max_open)
    : clock_(clock), lifetime_ns_(lifetime_ms * 1'000'000), max_open_(max_open) {
  EPIC_CHECK(max_open > 0);
}

wire::Secret TicketBook::Issue() {
  Open issued{.until_ns = clock_->SteadyNs() + lifetime_ns_};
  for (size_t at = 0; at < issued.secret.size(); at += sizeof(uint64_t)) {
    const uint64_t bits = SystemRandom();
    std::memcpy(issued.secret.data() + at, &bits, sizeof(bits));
  }
  MutexLock lock(&mu_);
  if (open_.size() >= max_open_) open_.pop_front();
  open_.push_back(issued);
  return issued.secret;
}

bool TicketBook::Redeem(const wire::Secret& secret) {
  const int64_t now_ns = clock_->SteadyNs();
  MutexLock lock(&mu_);
  while (!open_.empty() && open_.front().until_ns <= now_ns) open_.pop_front();
  for (auto it = open_.begin(); it != open_.end(); ++it) {
    if (!Same(it->secret, secret)) continue;
    open_.erase(it);
    return true;
  }
  return false;
}

}  // namespace epic::transport
