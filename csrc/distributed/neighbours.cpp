#include "csrc/distributed/neighbours.h"

#include <algorithm>
#include <string>
#include <vector>

#include "csrc/base/env.h"

namespace npu {
namespace {

void tell(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, std::vector<uint8_t>(text.begin(), text.end()));
}

std::string ask(c10d::Store& store, const std::string& key) {
  const std::vector<uint8_t> text = store.get(key);
  return {text.begin(), text.end()};
}

}  // namespace

Neighbours link_neighbours(c10d::Store& store, int rank, int size) {
  if (size == 1) return {};
  const auto key = [](const char* what, int of) {
    return std::string("npu_dispatch/") + what + "/" + std::to_string(of);
  };
  if (env_choice("NPU_DISPATCH_LINKS", {"auto", "off"}) == 1) {
    tell(store, key("address", rank), "-");  // which nobody opens
    return {};
  }
  auto links = std::make_unique<Links>(rank, size);
  tell(store, key("address", rank), links->address());
  std::vector<int> met;
  for (int p = 0; p < size; ++p)
    if (links->meet(p, ask(store, key("address", p)))) met.push_back(p);
  tell(store, key("met", rank), "all");
  std::string opened(size, '0');
  for (const int p : met) {
    ask(store, key("met", p));  // which may be read by this rank from then on
    if (links->open(p)) opened[p] = '1';
  }
  tell(store, key("linked", rank), opened);
  bool are_all = true;
  for (int p = 0; p < size; ++p) {
    if (p == rank) continue;
    const std::string theirs =
        links->linked(p) ? ask(store, key("linked", p)) : "0";
    // It says 0 of itself.
    are_all = are_all && std::count(theirs.begin(), theirs.end(), '0') == 1 &&
              theirs.size() == size_t(size);
    // A link that one side alone has would be waited for in vain.
    if (links->linked(p) && theirs.at(rank) == '0') links->close(p);
  }
  if (!links->linked_peers()) return {};
  return {std::move(links), are_all};
}

}  // namespace npu
