// What a finding contains, who is told of it, and what follows from the answer.
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/interop/flag.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/call_site.h"
#include "csrc/taskqueue/host_wait.h"
#include "csrc/taskqueue/task_sink.h"
#include "tests/cpp/check.h"
#include "tests/cpp/sanitizer/world.h"

namespace npu {
namespace {

using check::kRead;
using check::kWrite;
using check::submit;
using check::word;
using check::World;

std::vector<Finding> findings_;
bool keep(const Finding* findings, size_t count) {
  findings_.insert(findings_.end(), findings, findings + count);
  return false;
}

struct Keeping : World {
  Keeping() : World(&keep) { findings_.clear(); }
};

// Sets the call site of the calling thread while a Lines exists.
uint32_t line_ = 0;
CallSite line() { return {line_, 0}; }
uint32_t stack() { return line_; }
struct Lines {
  Lines() { set_call_site_hooks({line, stack}); }
  ~Lines() {
    set_call_site_hooks({});
    line_ = 0;
  }
};

bool submit_at(Stream& stream, const npu_kernel& kernel, float* memory,
               CallSite site) {
  Submission s;
  if (!stream.begin(1, s, site)) return false;
  s.task->kernel = &kernel;
  s.words[0] = word(memory);
  stream.commit(s);
  stream.after_commit(s);
  return true;
}

TEST(Finding, NamesBothLaunchesAndTheLinesOfTheBlock) {
  Lines lines;
  Keeping w;
  for (const uint32_t site : {10, 20}) {
    line_ = site;
    w.sanitizer.allocated(&w.one, w.memory, sizeof w.memory);
    line_ = site + 1;
    if (site == 10)
      w.sanitizer.freed(&w.one, w.memory, sizeof w.memory, FreedTo::kStream);
  }
  submit_at(w.one, kWrite, w.memory, {30, 31});
  submit_at(w.two, kRead, w.memory, {40, 41});
  w.sanitizer.freed(&w.one, w.memory, sizeof w.memory, FreedTo::kStream);
  submit_at(w.one, kRead, w.memory, {50, 51});

  EXPECT_EQ(findings_.size(), 2);
  const Finding& race = findings_[0];
  EXPECT_TRUE(race.kind == FindingKind::kReadWrite);
  EXPECT_EQ(race.first.op, kWrite.name);
  EXPECT_EQ(race.second.op, kRead.name);
  EXPECT_TRUE(race.first.site.site == 30 && race.first.site.forward == 31);
  EXPECT_TRUE(race.second.site.site == 40 && race.second.site.forward == 41);
  EXPECT_TRUE(race.first.device == 0 && race.second.device == 0);
  EXPECT_TRUE(race.alloc_site == 20 && race.free_site == 0);
  EXPECT_TRUE(race.old_alloc_site == 10 && race.old_free_site == 11);
  EXPECT_EQ(race.block, word(w.memory));
  EXPECT_EQ(race.bytes, sizeof w.memory);
  EXPECT_TRUE(!race.pinned && race.device == 0 && race.stream == 90);
  const Finding& use = findings_[1];
  EXPECT_TRUE(use.kind == FindingKind::kUseAfterFree);
  EXPECT_TRUE(use.free_site == 21 && use.first.site.site == 21);
  EXPECT_EQ(use.first.site.forward, 0);
  EXPECT_TRUE(use.first.device == 0 && use.first.stream == 90);
  EXPECT_EQ(use.second.site.site, 50);
  EXPECT_EQ(use.second.op, kRead.name);
  // What was freed is what is used now.
  EXPECT_TRUE(use.first.lo == use.second.lo && use.first.hi == use.second.hi);
  EXPECT_TRUE(use.second.hi > use.second.lo);
}

TEST(Finding, OfAUseAfterFreeNamesTheDevicesOfBoth) {
  Keeping w;
  Stream other(1, 97, 0, StreamMode::kQueued);
  other.set_observed(true);
  w.sanitizer.freed(&w.one, w.memory, sizeof w.memory, FreedTo::kStream);
  submit(other, kRead, {word(w.memory)});
  other.stop();
  EXPECT_EQ(findings_.size(), 1);
  EXPECT_TRUE(findings_[0].first.device == 0 && findings_[0].device == 0);
  EXPECT_EQ(findings_[0].second.device, 1);
}

TEST(Finding, OfPinnedMemoryIsOfNoStream) {
  Lines lines;
  Keeping w;
  line_ = 5;
  w.sanitizer.host_allocated(w.memory, sizeof w.memory);
  submit_at(w.one, kWrite, w.memory, {6, 0});
  line_ = 7;
  const uint64_t words[] = {word(w.memory)};
  w.sanitizer.host_touches(kRead, words);

  EXPECT_EQ(findings_.size(), 1);
  const Finding& f = findings_[0];
  EXPECT_TRUE(f.kind == FindingKind::kHostRead);
  EXPECT_TRUE(f.pinned && f.device == -1 && f.stream == -1);
  EXPECT_EQ(f.alloc_site, 5);
  EXPECT_TRUE(f.first.site.site == 6 && f.second.site.site == 7);
  EXPECT_TRUE(f.second.device == -1 && f.second.stream == -1);
  EXPECT_EQ(f.second.task, 0);
}

TEST(Finding, OfLentMemoryIsOfPinnedMemory) {
  Lines lines;
  Keeping w;
  float lent[16];
  line_ = 5;
  EXPECT_TRUE(w.sanitizer.host_lent(lent, sizeof lent));
  EXPECT_TRUE(!w.sanitizer.host_lent(lent, sizeof lent));
  submit_at(w.one, kWrite, lent, {6, 0});
  EXPECT_TRUE(w.sanitizer.pinned_pending());
  const uint64_t words[] = {word(lent)};
  w.sanitizer.host_touches(kRead, words);
  EXPECT_EQ(findings_.size(), 1);
  EXPECT_TRUE(findings_[0].pinned && findings_[0].device == -1);
  EXPECT_EQ(findings_[0].alloc_site, 0);  // nobody has allocated it here
  w.sanitizer.host_freed(lent);
  EXPECT_TRUE(!w.sanitizer.pinned_pending());
  EXPECT_TRUE(w.sanitizer.host_lent(lent, sizeof lent));
}

// Nothing of the device's block that had the address before is known of host
// memory.
TEST(Finding, OfLentMemorySaysNothingOfTheBlockThatWasThere) {
  Keeping w;
  submit(w.one, kWrite, {word(w.memory)});
  w.sanitizer.freed(&w.one, w.memory, sizeof w.memory, FreedTo::kStream);
  EXPECT_TRUE(w.sanitizer.host_lent(w.memory, sizeof w.memory));
  EXPECT_TRUE(!w.sanitizer.host_pending(w.memory));
}

TEST(Finding, OfWhatTheHostUsesIsOfDeviceMemoryToo) {
  Keeping w;
  submit(w.one, kWrite, {word(w.memory)});
  const uint64_t words[] = {word(w.memory)};
  w.sanitizer.host_touches(kRead, words);  // pinned memory only
  EXPECT_EQ(findings_.size(), 0);
  w.sanitizer.host_uses(w.two, kRead, words);
  EXPECT_EQ(findings_.size(), 1);
  EXPECT_TRUE(findings_[0].kind == FindingKind::kReadWrite);
  EXPECT_EQ(w.sanitizer.counts().findings, 1);
  w.sanitizer.freed(&w.one, w.memory, sizeof w.memory, FreedTo::kStream);
  w.sanitizer.host_uses(w.two, kRead, words);
  EXPECT_EQ(findings_.size(), 1);
}

bool refuse(const Finding*, size_t) { return true; }
int raised_ = 0;
void raise() { ++raised_; }
int touched_ = 0;

TEST(Finding, IsRaisedWhereItIsRefused) {
  raised_ = 0;
  for (const bool refused : {false, true}) {
    Sanitizer sanitizer({refused ? &refuse : &keep, &raise, nullptr});
    float memory[16];
    Stream one(0, 94, 0, StreamMode::kQueued);
    sanitizer.host_allocated(memory, sizeof memory);
    const uint64_t words[] = {word(memory)};
    const KernelCall call{&kWrite, words};
    sanitizer.replays(one, &call, 1);
    EXPECT_EQ(raised_, 0);
    sanitizer.host_touches(kWrite, words);
    EXPECT_EQ(raised_, refused);
    sanitizer.published(one, refused);
    EXPECT_EQ(raised_, 2 * refused);
  }
}

// Nobody need listen, and tasks run whatever is found.
TEST(Finding, IsCountedWhenNobodyListens) {
  Sanitizer sanitizer({nullptr, nullptr, nullptr});
  static std::vector<uint64_t> ran;
  ran.clear();
  static const npu_kernel counted{
      [](const npu_kernel*, const uint64_t* words, npu_failure*) {
        ran.push_back(words[0]);
        return int(NPU_OK);
      },
      "test::counted", &check::kWriteView, 1};
  float memory[16];
  Stream one(0, 94, 0, StreamMode::kInline), two(0, 95, 0, StreamMode::kQueued);
  set_observer(&sanitizer);
  for (Stream* s : {&one, &two}) s->set_observed(true);
  sanitizer.allocated(&one, memory, sizeof memory);
  sanitizer.adopt(two, memory, sizeof memory);
  for (Stream* s : {&two, &one}) {
    submit(*s, counted, {word(memory)});
    host_wait(*s, s->tail(), WaitReason::kStreamSync);
  }
  sanitizer.host_allocated(memory, sizeof memory);
  const uint64_t words[] = {word(memory)};
  submit(two, kWrite, {word(memory)});
  sanitizer.host_touches(kWrite, words);
  two.stop();
  set_observer(nullptr);
  EXPECT_EQ(ran.size(), 2);
  EXPECT_EQ(sanitizer.counts().tasks, 3);
  EXPECT_EQ(sanitizer.counts().accesses, 3);
}

// A thread that has queued work on pinned memory is told, and only such a
// thread.
TEST(Finding, OfPinnedMemoryIsLookedForByWhoeverIsTold) {
  touched_ = 0;
  Sanitizer sanitizer({&keep, nullptr, [] { ++touched_; }});
  float memory[16], pinned[16];
  Stream one(0, 94, 0, StreamMode::kQueued);
  set_observer(&sanitizer);
  one.set_observed(true);
  sanitizer.allocated(&one, memory, sizeof memory);
  sanitizer.host_allocated(pinned, sizeof pinned);
  submit(one, kWrite, {word(memory)});
  EXPECT_EQ(touched_, 0);
  EXPECT_TRUE(!sanitizer.pinned_pending());
  submit(one, kWrite, {word(pinned)});
  EXPECT_EQ(touched_, 1);
  EXPECT_TRUE(sanitizer.pinned_pending());
  one.stop();
  set_observer(nullptr);
  sanitizer.clear();
  EXPECT_TRUE(!sanitizer.pinned_pending());
}

TEST(Sanitizer, LooksAtNoTaskWithoutMemory) {
  World w;
  std::vector<uint64_t> got;
  w.two.wait_for(w.one, 0);
  submit(w.one, check::kAppend, {word(&got), 1});
  host_wait(w.one, 1, WaitReason::kStreamSync);
  EXPECT_EQ(got.size(), 1);
  EXPECT_EQ(w.sanitizer.counts().tasks, 0);
  submit(w.one, kWrite, {word(w.memory)});
  EXPECT_EQ(w.sanitizer.counts().tasks, 1);
  EXPECT_EQ(w.sanitizer.counts().accesses, 1);
  EXPECT_EQ(w.sanitizer.counts().findings, 0);
}

// An inline stream's tasks are done when they return, and so is what it waits
// for.
TEST(Sanitizer, TakesADirectStreamsWaitForTheHosts) {
  World w;
  Stream direct(0, 96, 0, StreamMode::kInline);
  direct.set_observed(true);
  submit(w.one, kWrite, {word(w.memory)});
  direct.wait_for(w.one, w.one.tail());
  submit(w.two, kWrite, {word(w.memory)});
  EXPECT_EQ(check::found_.size(), 0);
}

// This holds, too, when there is nothing left to wait for.
TEST(Sanitizer, TakesADirectStreamsWaitForWhatIsOverForTheHosts) {
  World w;
  Stream direct(0, 96, 0, StreamMode::kInline);
  direct.set_observed(true);
  submit(w.one, kWrite, {word(w.memory)});
  while (!w.one.retired().reached(w.one.tail())) std::this_thread::yield();
  direct.wait_for(w.one, w.one.tail());
  submit(w.two, kWrite, {word(w.memory)});
  EXPECT_EQ(check::found_.size(), 0);
}

TEST(Sanitizer, TakesNoQueuedStreamsWaitForTheHosts) {
  World w;
  Stream three(0, 96, 0, StreamMode::kQueued);
  three.set_observed(true);
  submit(w.one, kWrite, {word(w.memory)});
  three.wait_for(w.one, w.one.tail());
  submit(w.two, kWrite, {word(w.memory)});
  EXPECT_EQ(check::found_.size(), 1);
  three.stop();
}

// Where the host waits for a stream, it learns what the stream knew.
TEST(Sanitizer, KnowsThroughTheHostWhatItsStreamKnew) {
  World w;
  Stream three(0, 96, 0, StreamMode::kQueued);
  three.set_observed(true);
  submit(w.one, kWrite, {word(w.memory)});
  three.wait_for(w.one, w.one.tail());
  host_wait(three, three.tail(), WaitReason::kStreamSync);
  submit(w.two, kWrite, {word(w.memory)});
  EXPECT_EQ(check::found_.size(), 0);
  three.stop();
}

// A graph's nodes that set flags and wait for them order what is around them. A
// node that takes the flag clears it, so what comes before the next waiter's
// tasks is not known, and these are not checked yet.
TEST(Sanitizer, TakesTheFlagsOfAReplayForAnOrder) {
  const uint64_t set[] = {7, 1}, lower[] = {7, 0}, wait[] = {7, 0, 1};
  for (const npu_kernel* waiting : {&kTakeFlag, &kReachFlag})
    for (const bool lowered : {false, true}) {
      World w;
      float other[16];
      w.sanitizer.allocated(&w.two, other, sizeof other);
      Stream three(0, 96, 0, StreamMode::kQueued);
      three.set_observed(true);
      const uint64_t words[] = {word(w.memory)};
      const KernelCall first[] = {{&kWrite, words}, {&kSetFlag, set}};
      const KernelCall second[] = {{waiting, wait}, {&kRead, words}};
      const KernelCall down{&kSetFlag, lower};
      w.sanitizer.replays(w.one, first, 2);
      submit(w.one, check::kNothing, {});
      w.sanitizer.replays(w.two, second, 2);
      submit(w.two, check::kNothing, {});
      EXPECT_EQ(check::found_.size(), 0);
      if (lowered) w.sanitizer.replays(w.one, &down, 1);
      w.sanitizer.flag_awaited(&three, 7, false);
      submit(w.two, kWrite, {word(other)});
      submit(three, kRead, {word(other)});
      const bool still_up = waiting == &kReachFlag && !lowered;
      EXPECT_EQ(check::found_.size(), still_up);
      three.stop();
    }
}

TEST(Sanitizer, LooksAtWhatIsBehindAFlagInAReplay) {
  World w;
  float other[16];
  w.sanitizer.allocated(&w.one, other, sizeof other);
  const uint64_t words[] = {word(w.memory)}, set[] = {7, 1};
  const uint64_t not_its[] = {word(other)};
  const KernelCall calls[] = {{&kWrite, not_its}, {&kSetFlag, set},
                              {&kWrite, words},   {&kSetFlag, set},
                              {&kWrite, words},   {&kWrite, not_its}};
  w.sanitizer.replays(w.one, calls + 1, 4);  // without the first and the last
  submit(w.one, check::kNothing, {});
  submit(w.two, kRead, {word(other)});
  EXPECT_EQ(check::found_.size(), 0);
  submit(w.two, kRead, {word(w.memory)});
  EXPECT_EQ(check::found_.size(), 1);
}

// Tasks behind the one that sets the flag are not ordered before the waiter.
TEST(Sanitizer, OrdersNothingBehindTheFlagOfAReplay) {
  World w;
  const uint64_t words[] = {word(w.memory)}, set[] = {7, 1};
  const KernelCall calls[] = {{&kSetFlag, set}};
  w.sanitizer.replays(w.one, calls, 1);
  submit(w.one, check::kNothing, {});
  submit(w.one, kWrite, {words[0]});
  w.sanitizer.flag_awaited(&w.two, 7, true);
  submit(w.two, kRead, {words[0]});
  EXPECT_EQ(check::found_.size(), 1);
}

// A task that waits for a flag is not yet known to come after anything but the
// earlier tasks of its own stream; accesses of those are still checked.
TEST(Sanitizer, FindsWhatAStreamDidBeforeItWaitsForAFlag) {
  World w;
  submit(w.two, kWrite, {word(w.memory)});
  w.sanitizer.flag_awaited(&w.two, 7, true);
  submit(w.one, kRead, {word(w.memory)});
  EXPECT_EQ(check::found_.size(), 1);
}

TEST(Sanitizer, ForgetsFlagsWhenItIsCleared) {
  World w;
  submit(w.one, kWrite, {word(w.memory)});
  w.sanitizer.flag_raised(w.one, w.one.tail(), 7);
  w.sanitizer.clear();
  w.sanitizer.allocated(&w.one, w.memory, sizeof w.memory);
  w.sanitizer.flag_awaited(&w.two, 7, true);
  submit(w.one, kWrite, {word(w.memory)});
  submit(w.two, kRead, {word(w.memory)});  // who comes before is not known
  EXPECT_EQ(check::found_.size(), 0);
}

TEST(Sanitizer, KnowsNothingOfMemoryThatItWasNotTold) {
  Lines lines;
  Keeping w;
  float unknown[16];
  w.sanitizer.stream_recorded(w.two, unknown);
  w.sanitizer.freed(&w.one, unknown, sizeof unknown, FreedTo::kStream);
  w.sanitizer.host_freed(unknown);
  w.sanitizer.segment_freed(unknown, sizeof unknown);
  EXPECT_TRUE(!w.sanitizer.host_pending(unknown));
  const uint64_t words[] = {word(unknown)};
  w.sanitizer.host_touches(kWrite, words);
  w.sanitizer.host_uses(w.one, kWrite, words);
  EXPECT_EQ(findings_.size(), 0);

  // Freed twice, it is the first that counts.
  for (const uint32_t site : {8, 9}) {
    line_ = site;
    w.sanitizer.freed(&w.one, w.memory, sizeof w.memory, FreedTo::kStream);
  }
  submit(w.one, kRead, {word(w.memory)});
  EXPECT_EQ(findings_[0].free_site, 8);
}

TEST(Sanitizer, ForgetsMemoryThatTheDriverHasBack) {
  World w;
  submit(w.one, kWrite, {word(w.memory)});
  w.sanitizer.segment_freed(w.memory, sizeof w.memory);
  submit(w.two, kWrite, {word(w.memory)});
  EXPECT_EQ(check::found_.size(), 0);
}

TEST(Sanitizer, SaysWhoseABlockIs) {
  for (const bool adopted : {false, true}) {
    Keeping w;
    float memory[16];
    if (adopted)
      w.sanitizer.adopt(w.two, memory, sizeof memory);
    else
      w.sanitizer.allocated(&w.two, memory, sizeof memory);
    for (Stream* s : {&w.one, &w.two}) submit(*s, kWrite, {word(memory)});
    EXPECT_EQ(findings_.size(), 1);
    EXPECT_EQ(findings_[0].stream, 91);
    EXPECT_EQ(findings_[0].free_site, 0);
  }
}

// While the hook is asked, other threads may free the memory.
World* asked_ = nullptr;
TEST(Sanitizer, LooksAgainForMemoryWhenSomebodyHasBeenAsked) {
  World w([](const Finding*, size_t) {
    asked_->sanitizer.segment_freed(asked_->memory, sizeof asked_->memory);
    return false;
  });
  asked_ = &w;
  for (Stream* s : {&w.one, &w.two}) submit(*s, kWrite, {word(w.memory)});
  EXPECT_EQ(w.sanitizer.counts().findings, 1);
  EXPECT_EQ(w.sanitizer.counts().accesses, 1);
}

// Memory that a capture frees may be used by its graph at each replay, and by
// nobody else.
TEST(Sanitizer, LetsReplaysUseWhatTheirCaptureFreed) {
  struct Sink final : TaskSink {
    void open(Stream&, uint32_t, Submission&) override {}
    void close(Stream&, Submission&) noexcept override {}
    uint64_t mark(Stream&) override { return 0; }
    void wait(Stream&, Stream&, uint64_t) override {}
    void host_waits(const Stream&, WaitReason) override {}
  };
  static Sink sink;
  for (const bool captured : {false, true}) {
    World w;
    float memory[16];
    if (captured) w.one.set_sink(&sink);
    w.sanitizer.allocated(&w.one, memory, sizeof memory);
    w.one.set_sink(nullptr);
    w.sanitizer.freed(&w.one, memory, sizeof memory, FreedTo::kGraph);
    const uint64_t words[] = {word(memory)};
    const KernelCall call{&kWrite, words};
    w.sanitizer.replays(w.one, &call, 1);
    EXPECT_EQ(check::found_.size(), captured ? 0 : 1);
    EXPECT_EQ(w.sanitizer.counts().accesses, captured ? 1 : 0);
    submit(w.one, kWrite, {word(memory)});
    EXPECT_EQ(check::found_.size(), captured ? 1 : 2);
  }
}

TEST(Sanitizer, CountsTheTimeAndMemoryThatItTakes) {
  DeviceBlock& block = segment().devices[0];
  World w;
  const uint64_t before = block.sanitizer_ns.load(), began = now_ns();
  block.sanitizer_bytes.store(0);
  for (int i = 0; i < 64; ++i) submit(w.one, kWrite, {word(w.memory)});
  const uint64_t took = block.sanitizer_ns.load() - before;
  // What is measured counts for sixteen calls.
  EXPECT_TRUE(took > 0 && took < 17 * (now_ns() - began));
  EXPECT_EQ(block.sanitizer_bytes.load(), uint64_t(shadow_bytes.load()));
  w.sanitizer.clear();
  EXPECT_EQ(block.sanitizer_bytes.load(), 0);
}

}  // namespace
}  // namespace npu
