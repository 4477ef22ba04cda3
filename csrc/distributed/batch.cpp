#include "csrc/distributed/batch.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/SmallVector.h>
#include <string.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "csrc/distributed/core/links.h"

namespace npu {
namespace {

// A note about a message of this tag: the message itself, or where it is; or,
// back to the sender, that it has been read.
uint64_t sent(int tag) { return uint32_t(tag); }
uint64_t taken(int tag) { return uint64_t(1) << 32 | uint32_t(tag); }

at::Tensor bytes(void* data, size_t size) {
  return at::from_blob(data, {int64_t(size)}, at::kByte);
}

}  // namespace

Transport::Batch::Batch(Transport& on, Milliseconds timeout, bool links)
    : on_(on),
      links_(links ? on.links_.get() : nullptr),
      end_(std::chrono::steady_clock::now() + timeout) {}

Transport::Batch::~Batch() {
  for (const Pending& p : posted_) {
    if (p.work)
      p.work->abort();
    else if (p.sends && !p.is_note && !p.done)
      links_->withdraw();
  }
  std::lock_guard lock(on_.mutex_);
  for (const Pending& p : posted_)
    if (p.work) on_.waited_for_.remove(p.work);
}

bool Transport::Batch::through_link(int peer) const {
  if (!links_) return false;
  return peer < 0 ? links_->linked_peers() > 0 : links_->linked(peer);
}

void Transport::Batch::note(int peer, uint64_t key, const void* body,
                            size_t size) {
  notes_[peer] = links_->post(peer, key, body, size);
}

template <typename F>
void Transport::Batch::post(int peer, F&& start) {
  std::lock_guard lock(on_.mutex_);
  if (!on_.aborted_.empty()) refuse_locked();
  peer_ = peer;
  posted_.push_back(start());
  if (posted_.back().work) on_.waited_for_.push_back(posted_.back().work);
  peer_ = -1;
}

void Transport::Batch::send(int peer, int tag, const void* data, size_t size,
                            bool told) {
  if (!size) return;
  post(peer, [&] {
    Pending p{peer, nullptr, true, tag};
    if (!through_link(peer)) {
      std::vector<at::Tensor> one{bytes(const_cast<void*>(data), size)};
      p.work = on_.gloo_->send(one, peer, tag);
    } else if (size <= Note::kBody) {
      p.is_note = true;
      note(peer, sent(tag), data, size);
    } else if (!told) {
      const auto location = reinterpret_cast<uint64_t>(data);
      note(peer, sent(tag), &location, sizeof location);
    }
    return p;
  });
}

void Transport::Batch::receive(int peer, int tag, void* data, size_t size,
                               uint64_t location) {
  if (!size) return;
  post(peer, [&] {
    Pending p{peer, nullptr, false, tag, static_cast<char*>(data),
              size, location};
    if (!through_link(peer)) {
      std::vector<at::Tensor> one{bytes(data, size)};
      p.work = peer < 0 ? on_.gloo_->recvAnysource(one, tag)
                        : on_.gloo_->recv(one, peer, tag);
    }
    return p;
  });
}

bool Transport::Batch::is_done(Pending& p) {
  if (p.sends)
    return p.is_note || links_->take(p.peer, taken(p.tag), nullptr, 0);
  if (p.peer < 0) {
    for (int from = 0; from < on_.size_ && p.peer < 0; ++from)
      if (links_->linked(from) &&
          links_->take(from, sent(p.tag), p.data, p.size))
        p.peer = from;
    return p.peer >= 0;
  }
  if (p.size <= Note::kBody)
    return links_->take(p.peer, sent(p.tag), p.data, p.size);
  if (!p.location &&
      !links_->take(p.peer, sent(p.tag), &p.location, sizeof p.location))
    return false;
  const int waited_for = std::exchange(peer_, p.peer);
  links_->read(p.peer, p.location, p.data, p.size);
  note(p.peer, taken(p.tag), nullptr, 0);
  peer_ = waited_for;
  return true;
}

void Transport::Batch::look_at(size_t count) {
  if (!links_) return;
  links_->progress();
  // Of one tag, notes are for the messages in their order. Another thread may
  // take notes in between two looks, so where a message has none, those behind
  // it are not looked at.
  c10::SmallVector<std::tuple<int, int, bool>, 16> waiting;
  for (size_t i = 0; i < count; ++i) {
    Pending& p = posted_[i];
    if (p.work || p.done) continue;
    const std::tuple which(p.peer, p.tag, p.sends);
    if (std::ranges::find(waiting, which) != waiting.end()) continue;
    p.done = is_done(p);
    if (!p.done) waiting.push_back(which);
  }
}

// Why nothing will come from the peer, or, if it is -1, from any.
const char* Transport::Batch::why_lost(int peer) {
  if (peer >= 0) return links_->lost(peer);
  const char* why = nullptr;
  for (const int p : on_.peers_) {
    if (!(why = links_->lost(p))) return nullptr;
    peer_ = p;
  }
  return why;
}

// Waits for the peer until done(), and takes meanwhile what comes for the first
// `count`.
template <typename Done>
void Transport::Batch::wait_for_link(int peer, size_t count, Done done) {
  const char* lost = nullptr;
  Links::Wait wait(*links_);
  for (;;) {
    look_at(count);
    if (done()) return;
    {
      std::lock_guard lock(on_.mutex_);
      if (!on_.aborted_.empty()) refuse_locked();
    }
    const auto left = end_ - std::chrono::steady_clock::now();
    if (left <= left.zero()) refuse();
    // What came before the peer was lost has been looked at since.
    if (lost) throw std::runtime_error(lost);
    lost = why_lost(peer);
    if (!lost)
      wait.pause(
          std::chrono::duration_cast<std::chrono::nanoseconds>(left).count());
  }
}

void Transport::Batch::wait_for_gloo(const Pending& p) {
  const auto left = std::chrono::duration_cast<Milliseconds>(
      end_ - std::chrono::steady_clock::now());
  // A timeout of 0 would mean for ever.
  if (!p.work->wait(std::max(left, Milliseconds(1)))) refuse();
}

void Transport::Batch::wait(size_t count) {
  for (count = std::min(count, posted_.size()); count; --count) {
    const Pending& next = posted_.front();
    peer_ = next.peer;
    if (next.work)
      wait_for_gloo(next);
    else
      wait_for_link(next.peer, count, [&] { return next.done; });
    source_ = next.peer;
    std::lock_guard lock(on_.mutex_);
    if (next.work) on_.waited_for_.remove(next.work);
    posted_.pop_front();
  }
  // Who waits for a note would wait in vain if this rank made no other call.
  if (posted_.empty())
    for (const auto& [peer, number] : notes_) {
      peer_ = peer;
      wait_for_link(peer, 0, [&, to = peer, last = number] {
        return links_->has_left(to, last);
      });
    }
  peer_ = -1;
}

int Transport::Batch::wait_for_source() {
  const WorkPtr work = posted_.front().work;
  wait(1);
  return work ? work->sourceRank() : source_;
}

void Transport::Batch::refuse() {
  std::lock_guard lock(on_.mutex_);
  refuse_locked();
}

void Transport::Batch::refuse_locked() {
  throw std::runtime_error(on_.aborted_.empty() ? "the wait was given up"
                                                : on_.aborted_);
}

}  // namespace npu
