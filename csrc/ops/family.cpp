#include "csrc/ops/family.h"

#include <mutex>

#include "csrc/ops/identity.h"
#include "csrc/ops/result_memory.h"
#include "csrc/stats/segment.h"

namespace npu {
namespace {

struct OnStream {
  Stream* stream;
  std::weak_ptr<Family> family;
};

// The families that plans have. Those that no plan has any more are forgotten
// when their number may have doubled.
struct Families {
  std::mutex mutex;
  ByWords<std::vector<OnStream>> of;
  size_t sweep_at = 1024;

  static Families& get() {
    static auto* const all = new Families;
    return *all;
  }

  void sweep() {
    if (of.size() < sweep_at) return;
    for (auto at = of.begin(); at != of.end();) {
      std::erase_if(at->second,
                    [](const OnStream& o) { return o.family.expired(); });
      at = at->second.empty() ? of.erase(at) : std::next(at);
    }
    sweep_at = 2 * of.size() + 1024;
  }
};

}  // namespace

Family::Family(const Op& op, std::vector<OutSpec> outs)
    : op(op), outs(std::move(outs)) {
  ResultMemory::install();
  publish_name(op.schema().full_name.c_str());
}

bool Family::suits(const std::vector<OutSpec>& others) const {
  return std::equal(outs.begin(), outs.end(), others.begin(), others.end(),
                    [](const OutSpec& a, const OutSpec& b) {
                      return a.defined == b.defined && a.dtype == b.dtype &&
                             a.sizes.size() == b.sizes.size();
                    });
}

std::shared_ptr<Family> known_family(Stream& stream,
                                     at::ArrayRef<uint64_t> identity) {
  Families& families = Families::get();
  std::lock_guard lock(families.mutex);
  const auto found = families.of.find(identity);
  if (found == families.of.end()) return nullptr;
  for (const OnStream& one : found->second)
    if (one.stream == &stream) return one.family.lock();
  return nullptr;
}

std::shared_ptr<Family> family_for(Stream& stream,
                                   at::ArrayRef<uint64_t> identity,
                                   const Op& op,
                                   const std::vector<OutSpec>& outs) {
  if (auto known = known_family(stream, identity); known && known->suits(outs))
    return known;
  auto family = std::make_shared<Family>(op, outs);
  Families& families = Families::get();
  std::lock_guard lock(families.mutex);
  families.sweep();
  auto& all = families.of[identity.vec()];
  std::erase_if(all, [&](const OnStream& o) { return o.stream == &stream; });
  all.push_back({&stream, family});
  return family;
}

}  // namespace npu
