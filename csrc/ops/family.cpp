#include "csrc/ops/family.h"

#include <mutex>

#include "csrc/ops/identity.h"
#include "csrc/ops/result_memory.h"
#include "csrc/stats/segment.h"

namespace npu {
namespace {

// The families that plans have. Those that no plan has any more are forgotten
// when their number may have doubled.
struct Families {
  std::mutex mutex;
  ByWords<std::weak_ptr<Family>> of;
  size_t sweep_at = 1024;

  static Families& get() {
    static auto* const all = new Families;
    return *all;
  }
};

std::vector<uint64_t> words_of(Stream& stream,
                               at::ArrayRef<uint64_t> identity) {
  std::vector<uint64_t> words(identity.begin(), identity.end());
  words.push_back(reinterpret_cast<uintptr_t>(&stream));
  return words;
}

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
  const auto words = words_of(stream, identity);
  std::lock_guard lock(families.mutex);
  const auto found = families.of.find(words);
  return found == families.of.end() ? nullptr : found->second.lock();
}

std::shared_ptr<Family> family_for(Stream& stream,
                                   at::ArrayRef<uint64_t> identity,
                                   const Op& op,
                                   const std::vector<OutSpec>& outs) {
  Families& families = Families::get();
  std::lock_guard lock(families.mutex);
  auto& known = families.of[words_of(stream, identity)];
  if (auto family = known.lock(); family && family->suits(outs)) return family;
  auto family = std::make_shared<Family>(op, outs);
  known = family;
  if (families.of.size() >= families.sweep_at) {
    std::erase_if(families.of,
                  [](const auto& one) { return one.second.expired(); });
    families.sweep_at = 2 * families.of.size() + 1024;
  }
  return family;
}

}  // namespace npu
