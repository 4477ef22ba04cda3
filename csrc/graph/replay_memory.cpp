#include "csrc/graph/replay_memory.h"

#include <algorithm>

#include "csrc/engine/engine.h"
#include "csrc/graph/body.h"
#include "csrc/sanitizer/box.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

bool is_over(const std::shared_ptr<Contents>& contents) {
  return contents->over();
}

}  // namespace

std::vector<ByteRange> bytes_of(const Body& body, uint32_t access) {
  std::vector<ByteRange> found;
  {
    std::lock_guard lock(body.calls_mutex);
    for (const Node& node : body.nodes) {
      const npu_kernel* const kernel = node.call.kernel;
      for (uint32_t i = 0; kernel && i < kernel->n_views; ++i) {
        if (!(kernel->views[i].access & access)) continue;
        const Box box = box_of(kernel->views[i], node.call.words.data());
        if (!box.empty()) found.push_back({box.lo, box.hi});
      }
    }
  }
  std::ranges::sort(found, {}, &ByteRange::lo);
  std::vector<ByteRange> joined;
  for (const ByteRange& bytes : found) {
    if (joined.empty() || bytes.lo > joined.back().hi)
      joined.push_back(bytes);
    else
      joined.back().hi = std::max(joined.back().hi, bytes.hi);
  }
  return joined;
}

bool meet(const std::vector<ByteRange>& ranges, uintptr_t lo, uintptr_t hi) {
  const auto after = std::ranges::upper_bound(ranges, lo, {}, &ByteRange::hi);
  return after != ranges.end() && after->lo < hi;
}

bool Contents::meets(const std::vector<ByteRange>& written) const {
  return std::ranges::any_of(
      bytes_, [&](const ByteRange& b) { return meet(written, b.lo, b.hi); });
}

Overwrites::Overwrites(ReplayMemory& memory, std::vector<ByteRange> written)
    : memory_(memory), written_(std::move(written)) {
  std::lock_guard lock(memory_.mutex);
  for (const auto& contents : memory_.contents)
    if (contents->meets(written_)) contents_.push_back(contents);
  any_.store(!contents_.empty(), std::memory_order_relaxed);
  memory_.graphs.push_back(this);
}

Overwrites::~Overwrites() {
  std::lock_guard lock(memory_.mutex);
  std::erase(memory_.graphs, this);
}

void Overwrites::add(std::shared_ptr<Contents> contents) {
  std::lock_guard lock(memory_.mutex);
  std::vector<std::shared_ptr<Contents>>& all = memory_.contents;
  std::erase_if(all, is_over);
  std::vector<Overwrites*> found;
  for (Overwrites* const graph : memory_.graphs) {
    if (graph != this && !contents->meets(graph->written_)) continue;
    graph->contents_.reserve(graph->contents_.size() + 1);
    found.push_back(graph);
  }
  all.push_back(contents);
  for (Overwrites* const graph : found) {  // there is room for all
    graph->contents_.push_back(contents);
    graph->any_.store(true, std::memory_order_relaxed);
  }
}

void Overwrites::forget_what_is_over() {
  if (!std::erase_if(contents_, is_over)) return;
  any_stream_borrows_ = true;
  any_.store(!contents_.empty(), std::memory_order_relaxed);
}

void Overwrites::tell() {
  std::lock_guard lock(memory_.mutex);
  forget_what_is_over();
  for (const auto& contents : contents_) contents->overwritten();
}

bool Overwrites::any_held(std::span<const void* const> given_up) {
  std::lock_guard lock(memory_.mutex);
  forget_what_is_over();
  return std::ranges::any_of(contents_,
                             [&](const auto& c) { return c->held(given_up); });
}

void Overwrites::wait_for_borrowers(Stream& stream) {
  std::vector<Stream*> borrowers;
  {
    std::lock_guard lock(memory_.mutex);
    if (std::exchange(any_stream_borrows_, false))
      borrowers = streams(stream.device());
    for (const auto& contents : contents_)
      while (Stream* const borrower = contents->take_borrower())
        borrowers.push_back(borrower);
  }
  // To wait for a place in a queue may take long.
  for (Stream* const borrower : borrowers)
    stream.wait_for(*borrower, borrower->tail());
}

}  // namespace npu
