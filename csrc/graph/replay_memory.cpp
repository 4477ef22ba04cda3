#include "csrc/graph/replay_memory.h"

#include <algorithm>

#include "csrc/engine/engine.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

bool is_over(const std::shared_ptr<Contents>& contents) {
  return contents->over();
}

}  // namespace

bool Contents::meets(const std::vector<ByteRange>& written) const {
  return std::ranges::any_of(
      bytes_, [&](const ByteRange& b) { return meet(written, b.lo, b.hi); });
}

Overwrites::Overwrites(std::shared_ptr<ReplayMemory> memory,
                       std::vector<ByteRange> written)
    : memory_(std::move(memory)), written_(std::move(written)) {
  std::lock_guard lock(memory_->mutex_);
  for (const auto& contents : memory_->contents_)
    if (contents->meets(written_)) contents_.push_back(contents);
  any_.store(!contents_.empty(), std::memory_order_relaxed);
  memory_->graphs_.push_back(this);
}

Overwrites::~Overwrites() {
  std::lock_guard lock(memory_->mutex_);
  std::erase(memory_->graphs_, this);
}

void Overwrites::add(std::shared_ptr<Contents> contents) {
  std::lock_guard lock(memory_->mutex_);
  std::vector<std::shared_ptr<Contents>>& all = memory_->contents_;
  std::erase_if(all, is_over);
  std::vector<Overwrites*> found;
  for (Overwrites* const graph : memory_->graphs_) {
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
  std::lock_guard lock(memory_->mutex_);
  forget_what_is_over();
  for (const auto& contents : contents_) contents->overwritten();
}

bool Overwrites::any_held() {
  std::lock_guard lock(memory_->mutex_);
  forget_what_is_over();
  return std::ranges::any_of(contents_,
                             [](const auto& c) { return c->held(); });
}

void Overwrites::wait_for_borrowers(Stream& stream) {
  std::vector<Stream*> borrowers;
  {
    std::lock_guard lock(memory_->mutex_);
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
