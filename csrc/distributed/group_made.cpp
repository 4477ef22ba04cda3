// How a group comes to be: from a store, and from a part of another group.
#include <algorithm>
#include <numeric>
#include <random>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "csrc/distributed/group.h"
#include "csrc/distributed/neighbours.h"

namespace npu {
namespace {

// Returns "0-7,16" for ranks 0 to 7 and 16. Runs keep the text of thousands of
// ranks short.
std::string runs(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(ranks[i]);
    if (end > i + 1) text += '-' + std::to_string(ranks[end - 1]);
    i = end;
  }
  return text;
}

// The first to come names the group for all: dumps of its ranks match.
std::string agreed_name(c10d::Store& store) {
  std::random_device random;
  char mine[17];
  snprintf(mine, sizeof mine, "%08x%08x", random(), random());
  return store.compareSet("npu_dispatch/token", std::string(), mine);
}

}  // namespace

c10::intrusive_ptr<HcclGroup> HcclGroup::connect(
    const c10::intrusive_ptr<c10d::Store>& store,
    c10::intrusive_ptr<c10d::Backend> gloo, int rank, std::vector<int> global,
    std::string name, Milliseconds timeout) {
  const int size = int(global.size());
  const std::string token = size > 1 ? agreed_name(*store) : "";
  const int logged =
      log_group(name.c_str(), token.c_str(), runs(global).c_str(), rank, size);
  auto member = std::make_shared<Member>(
      Member{name, rank, size, std::move(global), JobLink::current()});
  auto group = c10::make_intrusive<HcclGroup>(std::move(gloo), rank, size,
                                              std::move(name), timeout, logged);
  group->transport_->use(link_neighbours(*store, rank, size));
  if (member->link)
    group->first_of_job_ = member->link->watch(group->transport_);
  group->member_ = std::move(member);
  group->store_ = store;
  return group;
}

c10::intrusive_ptr<c10d::Backend> HcclGroup::split(
    const c10::intrusive_ptr<c10d::Store>&, const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  // Every rank of this group calls split(), also a rank that is in none of the
  // parts, so the count of calls is the same on all ranks. The name and the
  // store that torch gives a part are not the same: they depend on how many
  // groups a rank is in.
  uint64_t number;
  {
    std::lock_guard lock(mutex_);
    number = splits_++;
  }
  const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
  if (mine == ranks.end()) return nullptr;
  const auto part = c10::make_intrusive<c10d::PrefixStore>(
      "split/" + std::to_string(number) + "/" + std::to_string(ranks[0]),
      store_);
  c10::intrusive_ptr<c10d::Backend> gloo;
  if (ranks.size() > 1) {
    const auto same = gloo_->getBackendOptions();
    // For every group but the first, Gloo reads the names of its ranks there.
    same->global_ranks_in_group.resize(size_);
    std::iota(same->global_ranks_in_group.begin(),
              same->global_ranks_in_group.end(), 0);
    gloo = gloo_->split(part, ranks, same);
  }
  std::vector<int> global;
  for (const int rank : ranks) global.push_back(member_->global.at(rank));
  const auto group =
      connect(part, std::move(gloo), int(mine - ranks.begin()),
              std::move(global), options->group_name, options->timeout);
  group->describe(options->group_desc);
  return group;
}

}  // namespace npu
