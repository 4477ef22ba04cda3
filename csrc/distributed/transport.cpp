#include "csrc/distributed/transport.h"

#include <string.h>

#include <algorithm>
#include <memory>

#include "csrc/base/clock.h"
#include "csrc/distributed/batch.h"
#include "csrc/distributed/core/links.h"

namespace npu {
namespace {

SiteName site_name = nullptr;

constexpr uint32_t kMagic = 0x6c636368;

// The tags of collectives have a bit that those of send and recv have not. They
// have 22 bits of the sequence number; a group never has that many calls under
// way.
int tag_of(const Collective& call, int step) {
  return int(1u << 30 | uint32_t(call.agreed.seq & 0x3fffff) << 2 | step);
}
enum Step { kFrames, kData, kMoreData, kWhy };
// Parts of a message. Frames are told apart by direction, because two ranks may
// send each other messages under one tag.
enum P2PStep { kSenders, kReceivers, kPayload };

bool same_order(const Agreement& a, const Agreement& b) {
  return a.formats & b.formats || !(a.formats | b.formats);
}

// What is said of a tensor whose elements are not in the order of its sizes.
const char* order(const Agreement& a) {
  return a.formats && !(a.formats & 1) ? ", channels last" : "";
}

std::string describe(const Agreement& a) {
  std::string text = std::string(a.name) + " #" + std::to_string(a.seq) + " (";
  if (a.dtype >= 0) text += c10::toString(c10::ScalarType(a.dtype));
  if (a.numel) text += ", " + std::to_string(a.numel) + " elements";
  text += order(a);
  if (a.reduce >= 0) {
    static const char* const names[] = {"SUM", "AVG",  "PRODUCT",
                                        "MIN", "MAX",  "BAND",
                                        "BOR", "BXOR", "PREMUL_SUM"};
    text += std::string(", ") + names[a.reduce];
  }
  if (a.root >= 0) text += ", root " + std::to_string(a.root);
  if (a.captured)
    text += ", replayed, captured as #" + std::to_string(a.captured - 1);
  return text + ")";
}

// Which call a rank is at, and how many bytes it sends or expects.
struct Side {
  int rank;
  const Agreement& agreed;
  uint64_t bytes;
  std::string line;

  std::string text() const {
    std::string text =
        "rank " + std::to_string(rank) + " is at " + describe(agreed);
    return line.empty() ? text : text + " (" + line + ")";
  }
};

std::string difference(const Side& theirs, const Side& mine) {
  return "the ranks disagree: " + theirs.text() + " and sends " +
         std::to_string(theirs.bytes) + " bytes; " + mine.text() +
         " and expects " + std::to_string(mine.bytes);
}

void note_all_here(const Collective& call) {
  // Relaxed: statistics order nothing.
  if (call.all_here_ns)
    call.all_here_ns->store(now_ns(), std::memory_order_relaxed);
}

std::string lost(int peer, const std::exception& e) {
  return "lost rank " + std::to_string(peer) + " while data moved: " + e.what();
}

// The segment of `all` that begins at `offset`; empty behind the end of `all`.
Bytes segment(const Bytes& all, size_t offset) {
  if (offset >= all.size) return {};
  return {static_cast<char*>(all.data) + offset,
          std::min(SegmentedReduction::kSegment, all.size - offset)};
}

}  // namespace

// It has a fixed size, so that any two ranks understand each other.
struct Transport::Frame {
  uint32_t magic;  // 0: the frame has not arrived
  Agreement agreed;
  uint64_t sends, receives;  // bytes to and from the rank that reads the frame
  uint64_t location;         // of what is sent, for a linked rank that reads it
  char payload[kInline];

  bool agrees_with(const Frame& theirs) const {
    const Agreement &a = agreed, &b = theirs.agreed;
    return !strncmp(a.name, b.name, sizeof a.name) && a.numel == b.numel &&
           a.captured == b.captured && a.root == b.root && a.dtype == b.dtype &&
           a.reduce == b.reduce && same_order(a, b) &&
           sends == theirs.receives && receives == theirs.sends;
  }
};

void set_site_name(SiteName name) { site_name = name; }
std::string launch_line(uint32_t site) {
  return site_name ? site_name(site) : std::string();
}

Transport::Transport(c10::intrusive_ptr<c10d::Backend> gloo, int rank, int size)
    : gloo_(std::move(gloo)), rank_(rank), size_(size) {
  for (int i = 1; i < size_; ++i) peers_.push_back((rank_ + i) % size_);
}

Transport::~Transport() = default;

void Transport::use(Neighbours neighbours) {
  links_ = std::move(neighbours.links);
  all_are_linked_ = neighbours.are_all;
}

void Transport::abort(const std::string& why) {
  std::lock_guard lock(mutex_);
  if (aborted_.empty()) aborted_ = why;
  for (const WorkPtr& work : waited_for_) work->abort();
  if (links_) links_->wake();
}

std::string Transport::aborted() {
  std::lock_guard lock(mutex_);
  return aborted_;
}

std::unique_ptr<Transport::Frame[]> Transport::agree(
    const Collective& call, const std::vector<Bytes>& out,
    const std::vector<Bytes>& in) {
  const auto mine = std::make_unique<Frame[]>(size_);
  auto theirs = std::make_unique<Frame[]>(size_);
  {
    Batch batch(*this, call.timeout);
    try {
      for (const int p : peers_)
        batch.receive(p, tag_of(call, kFrames), &theirs[p], sizeof(Frame));
      for (const int p : peers_) {
        Frame& frame = mine[p];
        frame.magic = kMagic;
        frame.agreed = call.agreed;
        frame.sends = out[p].size;
        frame.receives = in[p].size;
        frame.location = reinterpret_cast<uint64_t>(out[p].data);
        if (out[p].size && out[p].size <= kInline)
          memcpy(frame.payload, out[p].data, out[p].size);
        batch.send(p, tag_of(call, kFrames), &frame, sizeof(Frame));
      }
      batch.wait();
      note_all_here(call);
    } catch (const std::exception& e) {
      std::string text;
      if (batch.over())
        text =
            "timed out after " + std::to_string(call.timeout.count()) + " ms";
      else if (batch.peer() >= 0)
        text = "lost rank " + std::to_string(batch.peer()) + ": " + e.what();
      else
        throw;
      // The lost rank may only have given up because of another, so the text
      // names every rank that has not launched the call.
      std::string missing;
      for (const int p : peers_)
        if (!theirs[p].magic)
          missing += (missing.empty() ? "" : ", ") + std::to_string(p);
      if (!missing.empty()) text += "; not launched by: rank " + missing;
      throw std::runtime_error(text);
    }
  }
  std::string wrong;
  for (const int p : peers_) {
    if (mine[p].agrees_with(theirs[p])) continue;
    // Both sides see the disagreement, so both tell the other their line.
    constexpr size_t kLine = 256;
    char line[kLine] = {}, other[kLine] = {};
    snprintf(line, kLine, "%s", launch_line(call.site).c_str());
    try {
      Batch why(*this, std::min(call.timeout, Milliseconds(2000)));
      why.receive(p, tag_of(call, kWhy), other, kLine);
      why.send(p, tag_of(call, kWhy), line, kLine);
      why.wait();
    } catch (const std::exception&) {
      // The report then lacks the other rank's line.
    }
    other[kLine - 1] = 0;
    wrong += (wrong.empty() ? "" : "\n") +
             difference({p, theirs[p].agreed, theirs[p].sends, other},
                        {rank_, mine[p].agreed, mine[p].receives, line});
  }
  if (!wrong.empty()) throw std::runtime_error(wrong);
  return theirs;
}

void Transport::exchange(const Collective& call, const std::vector<Bytes>& out,
                         const std::vector<Bytes>& in) {
  if (size_ == 1) return;
  const auto theirs = agree(call, out, in);
  Batch data(*this, call.timeout);
  try {
    for (const int p : peers_) {
      if (in[p].size > kInline)
        data.receive(p, tag_of(call, kData), in[p].data, in[p].size,
                     theirs[p].location);
      else if (in[p].size)
        memcpy(in[p].data, theirs[p].payload, in[p].size);
    }
    for (const int p : peers_)
      if (out[p].size > kInline)
        data.send(p, tag_of(call, kData), out[p].data, out[p].size,
                  /*told=*/true);
    data.wait();
  } catch (const std::exception& e) {
    throw std::runtime_error(lost(data.peer(), e));
  }
}

// A rank returns its chunk of a result to me only once it has received all of
// my part of that chunk. So what is still being sent from `send` is not
// overwritten, though `result` may be the same memory.
void Transport::reduce(const Collective& call,
                       const SegmentedReduction& parts) {
  using Parts = SegmentedReduction;
  const auto theirs =
      agree(call, parts.send, std::vector<Bytes>(size_, parts.kept));
  Batch arriving(*this, call.timeout), others(*this, call.timeout);
  const auto held = [](size_t offset) {
    return offset / Parts::kSegment % Parts::kHeld;
  };
  const auto expect = [&](size_t offset) {
    for (const int p : peers_)
      arriving.receive(
          p, tag_of(call, kData),
          parts.room + (held(offset) * size_ + p) * Parts::kSegment,
          segment(parts.kept, offset).size, theirs[p].location + offset);
  };
  try {
    for (size_t at = 0; at < Parts::kHeld * Parts::kSegment;
         at += Parts::kSegment)
      expect(at);
    size_t longest = 0;
    for (const int p : peers_) longest = std::max(longest, parts.send[p].size);
    for (size_t at = 0; at < longest; at += Parts::kSegment)
      for (const int p : peers_) {
        const Bytes back =
            parts.returns() ? segment(parts.result[p], at) : Bytes{};
        others.receive(p, tag_of(call, kMoreData), back.data, back.size);
        const Bytes there = segment(parts.send[p], at);
        others.send(p, tag_of(call, kData), there.data, there.size,
                    /*told=*/true);
      }
    for (size_t at = 0; at < parts.kept.size; at += Parts::kSegment) {
      arriving.wait(peers_.size());
      const Bytes done = segment(parts.kept, at);
      parts.reduce(at, done.size, held(at));
      if (parts.returns())
        for (const int p : peers_)
          others.send(p, tag_of(call, kMoreData), done.data, done.size);
      others.look();
      expect(at + Parts::kHeld * Parts::kSegment);
    }
    others.wait();
  } catch (const std::exception& e) {
    const int peer = arriving.peer() >= 0 ? arriving.peer() : others.peer();
    throw std::runtime_error(lost(peer, e));
  }
}

void Transport::move(std::vector<Message>& messages, const Collective& call) {
  const size_t n = messages.size();
  const auto frames = std::make_unique<Frame[]>(2 * n);
  Frame *const mine = frames.get(), *const theirs = mine + n;
  const auto type = [](const Frame& f) {
    return c10::toString(c10::ScalarType(f.agreed.dtype)) +
           std::string(order(f.agreed));
  };
  const auto tag = [&](size_t i, int step) {
    return int(messages[i].tag << 2 | step);
  };
  // A recv from any rank takes what comes first, whatever way it comes.
  Batch batch(*this, call.timeout, all_are_linked_);
  try {
    for (size_t i = 0; i < n; ++i) {
      Message& m = messages[i];
      Frame& frame = mine[i];
      frame.magic = kMagic;
      frame.agreed.dtype = m.dtype;
      frame.agreed.formats = m.formats;
      (m.sends ? frame.sends : frame.receives) = m.bytes.size;
      frame.location = reinterpret_cast<uint64_t>(m.bytes.data);
      if (m.sends && m.bytes.size <= kInline && m.bytes.size)
        memcpy(frame.payload, m.bytes.data, m.bytes.size);
      if (m.peer < 0) {
        // This message is alone in its batch; the frame that arrives says which
        // rank sends.
        batch.receive(-1, tag(i, kSenders), &theirs[i], sizeof(Frame));
        m.peer = batch.wait_for_source();
      } else {
        batch.receive(m.peer, tag(i, m.sends ? kReceivers : kSenders),
                      &theirs[i], sizeof(Frame));
      }
    }
    for (size_t i = 0; i < n; ++i)
      batch.send(messages[i].peer,
                 tag(i, messages[i].sends ? kSenders : kReceivers), &mine[i],
                 sizeof(Frame));
    batch.wait();
    note_all_here(call);
    for (size_t i = 0; i < n; ++i) {
      const Message& m = messages[i];
      if (mine[i].agrees_with(theirs[i])) continue;
      throw std::runtime_error(
          "the ranks disagree: rank " +
          std::to_string(m.sends ? rank_ : m.peer) + " sends " +
          std::to_string(m.sends ? m.bytes.size : theirs[i].sends) +
          " bytes of " + type(m.sends ? mine[i] : theirs[i]) + ", rank " +
          std::to_string(m.sends ? m.peer : rank_) + " receives " +
          std::to_string(m.sends ? theirs[i].receives : m.bytes.size) + " of " +
          type(m.sends ? theirs[i] : mine[i]));
    }
    for (size_t i = 0; i < n; ++i) {
      const Message& m = messages[i];
      if (m.bytes.size <= kInline) {
        if (!m.sends && m.bytes.size)
          memcpy(m.bytes.data, theirs[i].payload, m.bytes.size);
      } else if (!m.sends) {
        batch.receive(m.peer, tag(i, kPayload), m.bytes.data, m.bytes.size,
                      theirs[i].location);
      }
    }
    for (size_t i = 0; i < n; ++i) {
      const Message& m = messages[i];
      if (m.sends && m.bytes.size > kInline)
        batch.send(m.peer, tag(i, kPayload), m.bytes.data, m.bytes.size,
                   /*told=*/true);
    }
    batch.wait();
  } catch (const std::exception& e) {
    if (batch.peer() < 0) throw;
    throw std::runtime_error((batch.over()
                                  ? "timed out after " +
                                        std::to_string(call.timeout.count()) +
                                        " ms waiting for rank "
                                  : "lost rank ") +
                             std::to_string(batch.peer()) + ": " + e.what());
  }
}

}  // namespace npu
