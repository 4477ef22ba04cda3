// Which accesses are found to be unordered, what a finding contains, who is
// told of it, and what follows from the answer.
#include "csrc/sanitizer/sanitizer.h"
#include "csrc/interop/flag.h"
#include "csrc/taskqueue/call_site.h"
#include "csrc/taskqueue/task_sink.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

const int64_t kSize[] = {16}, kStride[] = {1};
const npu_view kWriteView{kSize, kStride, 1, 4, 0, NPU_WRITE};
const npu_view kReadView{kSize, kStride, 1, 4, 0, NPU_READ};
const npu_view kThirdWord{kSize, kStride, 1, 4, 2, NPU_WRITE};
constexpr npu_kernel kWrite{run_nothing, "test::write", &kWriteView, 1};
constexpr npu_kernel kRead{run_nothing, "test::read", &kReadView, 1};
// words: Numbers*, value, what it writes
constexpr npu_kernel kWriteAndAppend{run_append, "test::write and append",
                                     &kThirdWord, 1};

std::vector<Finding> found_;
bool keep(const Finding* findings, size_t count) {
  found_.insert(found_.end(), findings, findings + count);
  return false;
}
bool refuse(const Finding*, size_t) { return true; }

// Streams under a sanitizer, and a block of the first one.
struct World {
  explicit World(const SanitizerHooks& hooks = {&keep, nullptr, nullptr})
      : sanitizer(hooks) {
    found_.clear();
    list_observer(sanitizer, true);
    for (Stream* s : {&one, &two, &three, &direct}) s->look_for_observers();
    allocate(one, memory);
  }
  ~World() {
    for (Stream* s : {&one, &two, &three}) s->stop();
    list_observer(sanitizer, false);
  }
  void allocate(Stream& stream, float* at) {
    sanitizer.allocated(stream, at, sizeof memory);
  }
  // Makes it memory of the host.
  void pin(float* at, bool lent = false) {
    if (lent)
      EXPECT_TRUE(sanitizer.host_lent(at, sizeof memory));
    else
      sanitizer.host_allocated(at, sizeof memory);
  }
  void replay(Stream& stream, std::initializer_list<KernelCall> calls) {
    sanitizer.replays(stream, calls.begin(), calls.size());
    submit(stream, kNothing, {});
  }
  void write(Stream& stream) { submit(stream, kWrite, {word(memory)}); }
  void read(Stream& stream) { submit(stream, kRead, {word(memory)}); }
  void free() { sanitizer.freed(one, memory, sizeof memory, FreedTo::kStream); }

  Sanitizer sanitizer;
  Stream one{0, 90, 0, StreamMode::kQueued}, two{0, 91, 0, StreamMode::kQueued},
      three{0, 96, 0, StreamMode::kQueued};
  Stream direct{0, 97, 0, StreamMode::kInline};
  float memory[16] = {}, other[16] = {};
  const uint64_t words[1] = {word(memory)}, others[1] = {word(other)};
};

TEST(Sanitizer, OrdersLaunchesAfterAFlagThatTheHostWaitedFor) {
  World w;
  w.write(w.one);
  w.sanitizer.flag_raised(w.one, w.one.tail(), 7);
  w.sanitizer.flag_awaited(nullptr, 7, false);
  w.read(w.two);
  EXPECT_EQ(found_.size(), 0);

  w.sanitizer.flag_lowered(7);
  w.write(w.one);
  w.sanitizer.flag_awaited(nullptr, 7, false);
  w.read(w.two);
  EXPECT_EQ(found_.size(), 2);  // each of one's write with one of two's reads
}

TEST(Sanitizer, KnowsNothingOfMemoryBeyondABlock) {
  World w;
  alignas(64) static float memory[32];
  w.sanitizer.allocated(w.one, memory, 64);
  submit(w.one, kWrite, {word(memory + 16)});
  submit(w.two, kWrite, {word(memory + 16)});
  EXPECT_EQ(found_.size(), 0);
  submit(w.one, kWrite, {word(memory + 15)});
  submit(w.two, kWrite, {word(memory + 15)});
  EXPECT_EQ(found_.size(), 1);
}

// More arguments than there is room for without the heap.
TEST(Sanitizer, LooksAtEveryArgumentOfATaskAndOfAReplay) {
  constexpr uint32_t kMany = 40;
  static const int64_t size[] = {1};
  static npu_view views[kMany];
  for (uint32_t i = 0; i < kMany; ++i)
    views[i] = {size, kStride, 1, 4, uint16_t(i), NPU_WRITE};
  static const npu_kernel wide{run_nothing, "test::wide", views, kMany};
  for (const bool replay : {false, true}) {
    World w;
    float memory[kMany];
    w.sanitizer.allocated(w.one, memory, sizeof memory);
    uint64_t words[kMany];
    for (uint32_t i = 0; i < kMany; ++i) words[i] = word(memory + i);
    if (replay) {
      w.replay(w.one, {{&wide, words}, {&wide, words}});
    } else {
      Submission s;
      EXPECT_TRUE(begin(w.one, s, wide, {}, kMany));
      std::copy(words, words + kMany, s.words);
      w.one.commit(s);
    }
    const npu_view last{size, kStride, 1, 4, 0, NPU_READ};
    const npu_kernel read{run_nothing, "test::read one", &last, 1};
    for (uint32_t i = 0; i < kMany; ++i) {
      submit(w.two, read, {words[i]});
      EXPECT_EQ(found_.size(), i + 1);
    }
  }
}

TEST(Sanitizer, ForgetsWhatItComparesWithTheMemory) {
  World w;
  for (const bool freed : {false, true}) {
    w.memory[3] = 0;
    w.pin(w.memory);
    w.sanitizer.host_escaped(w.memory);
    w.read(w.one);
    freed ? w.sanitizer.host_freed(w.memory) : w.pin(w.memory);
    w.memory[3] = 1;
    drain(w.one);
  }
  EXPECT_EQ(found_.size(), 0);
}

// The wait raises, or the thread's next launch where the wait cannot.
TEST(Sanitizer, RaisesWhatAWaitFindsOnce) {
  static int raised;
  for (const bool direct : {false, true}) {
    raised = 0;
    World w({&refuse, [] { ++raised; }, nullptr});
    Stream& one = w.one;
    w.pin(w.memory);
    w.sanitizer.host_escaped(w.memory);
    w.read(one);
    w.memory[3] = 1;
    if (direct)
      EXPECT_TRUE(w.sanitizer.host_waited(one, one.tail()));
    else
      drain(one);
    EXPECT_EQ(raised, direct ? 0 : 1);
    submit(one, kNothing, {});
    submit(one, kNothing, {});
    drain(one);
    EXPECT_EQ(raised, 1);
  }
}

// What was done to the device's memory at that address is forgotten.
TEST(Sanitizer, KnowsNothingOfHostMemoryThatWasTheDevices) {
  for (const bool lent : {false, true}) {
    World w;
    w.write(w.one);
    if (lent) w.free();
    w.pin(w.memory, lent);
    EXPECT_TRUE(!w.sanitizer.host_pending(w.memory));
    w.write(w.two);
    EXPECT_EQ(found_.size(), 0);
  }
}

TEST(Sanitizer, RefusesAReplayBeforeItIsQueued) {
  struct Refused {};
  World w({&refuse, [] { throw Refused(); }, nullptr});
  w.free();
  const KernelCall call{&kRead, w.words};
  EXPECT_THROWS(w.sanitizer.replays(w.one, &call, 1), Refused);
}

// A report may end in the user's code, which turns the sanitizer off and on.
World* cleared_ = nullptr;
bool clear(const Finding* findings, size_t count) {
  keep(findings, count);
  cleared_->sanitizer.clear();
  cleared_->sanitizer.adopt(cleared_->two, cleared_->memory,
                            sizeof cleared_->memory);
  return false;
}

TEST(Sanitizer, MayBeClearedWhileItReports) {
  World w({&clear, nullptr, nullptr});
  cleared_ = &w;
  for (int turn = 1; turn <= 2; ++turn) {
    w.write(w.one);
    EXPECT_EQ(found_.size(), size_t(turn - 1));
    w.read(w.two);
    EXPECT_EQ(found_.size(), size_t(turn));
    // The one that was refused nothing is not known any more.
    EXPECT_EQ(w.sanitizer.counts().accesses, 0);
    EXPECT_EQ(w.sanitizer.counts().tasks, 0);
  }
}

// Under TSan as well: eight threads, each with memory of its own; half of them
// with the host's, which is compared, and half with the device's, which also
// read a block that only the first stream uses.
TEST(Sanitizer, ServesManyThreads) {
  static std::atomic<size_t> count{0};
  World w({[](const Finding*, size_t found) {
             count += found;
             return false;
           },
           nullptr, nullptr});
  on_threads(8, [&](int t) {
    float own[16] = {};
    Stream& stream = t % 2 ? w.one : w.two;
    if (t < 4) {
      w.pin(own);
      w.sanitizer.host_escaped(own);
      for (int i = 0; i < 100; ++i) {
        own[3] = float(i);
        submit(stream, kRead, {word(own)});
        drain(stream);
      }
      return w.sanitizer.host_freed(own);
    }
    for (int i = 0; i < 300; ++i) {
      w.allocate(stream, own);
      submit(stream, kWrite, {word(own)});
      w.read(w.one);
      if (i % 50 == 0) drain(stream);
      w.sanitizer.freed(stream, own, sizeof own, FreedTo::kStream);
    }
    drain(stream);
  });
  EXPECT_EQ(count.load(), 0);
}

// Sets the call site of the calling thread while a Lines exists.
uint32_t line_ = 0;
CallSite line() { return {line_, 0}; }
uint32_t stack() { return line_; }
struct Lines {
  Lines() { hooks = {.call_site = line, .call_stack = stack}; }
  ~Lines() {
    hooks = {};
    line_ = 0;
  }
};

TEST(Finding, NamesBothLaunchesAndTheLinesOfTheBlock) {
  Lines lines;
  World w;
  for (const uint32_t site : {10, 20}) {
    line_ = site;
    w.sanitizer.allocated(w.one, w.memory, sizeof w.memory);
    line_ = site + 1;
    if (site == 10) w.free();
  }
  submit(w.one, kNothing, {});
  submit(w.one, kWrite, {word(w.memory)}, 0, {30, 31});
  submit(w.two, kRead, {word(w.memory)}, 0, {40, 41});
  w.free();
  submit(w.one, kRead, {word(w.memory)}, 0, {50, 51});

  EXPECT_EQ(found_.size(), 2);
  const Finding& race = found_[0];
  EXPECT_TRUE(race.kind == FindingKind::kReadWrite);
  EXPECT_EQ(race.first.op, kWrite.name);
  EXPECT_EQ(race.second.op, kRead.name);
  EXPECT_TRUE(race.first.site.site == 30 && race.first.site.forward == 31);
  EXPECT_TRUE(race.second.site.site == 40 && race.second.site.forward == 41);
  EXPECT_TRUE(race.first.device == 0 && race.second.device == 0);
  EXPECT_TRUE(race.first.stream == 90 && race.second.stream == 91);
  EXPECT_TRUE(race.first.task == 1 && race.second.task == 0);
  EXPECT_TRUE(race.first.writes && !race.first.reads);
  EXPECT_TRUE(!race.second.writes && race.second.reads);
  EXPECT_EQ(race.first.lo, word(w.memory));
  EXPECT_EQ(race.first.hi, word(w.memory + 16));
  EXPECT_EQ(race.second.argument, 0);
  EXPECT_TRUE(race.alloc_site == 20 && race.free_site == 0);
  EXPECT_TRUE(race.old_alloc_site == 10 && race.old_free_site == 11);
  EXPECT_EQ(race.block, word(w.memory));
  EXPECT_EQ(race.bytes, sizeof w.memory);
  EXPECT_TRUE(!race.pinned && race.device == 0 && race.stream == 90);
  const Finding& use = found_[1];
  EXPECT_TRUE(use.kind == FindingKind::kUseAfterFree);
  EXPECT_TRUE(use.free_site == 21 && use.first.site.site == 21);
  EXPECT_EQ(use.first.site.forward, 0);
  EXPECT_TRUE(use.first.device == 0 && use.first.stream == 90);
  EXPECT_EQ(use.second.site.site, 50);
  EXPECT_EQ(use.first.op, std::string("free"));
  EXPECT_EQ(use.second.op, kRead.name);
  // What was freed is what is used now.
  EXPECT_TRUE(use.first.lo == use.second.lo && use.first.hi == use.second.hi);
  EXPECT_TRUE(use.second.hi > use.second.lo);
}

TEST(Finding, OfAUseAfterFreeNamesTheDevicesOfBoth) {
  World w;
  Stream other(1, 97, 0, StreamMode::kQueued);
  other.look_for_observers();
  w.free();
  submit(other, kRead, {word(w.memory)});
  other.stop();
  EXPECT_EQ(found_.size(), 1);
  EXPECT_TRUE(found_[0].first.device == 0 && found_[0].device == 0);
  EXPECT_EQ(found_[0].second.device, 1);
}

TEST(Finding, OfPinnedAndLentMemoryIsOfNoStream) {
  for (const bool lent : {false, true}) {
    Lines lines;
    World w;
    line_ = 5;
    w.pin(w.other, lent);
    if (lent) EXPECT_TRUE(!w.sanitizer.host_lent(w.other, sizeof w.other));
    submit(w.one, kWrite, {word(w.other)}, 0, {6, 0});
    EXPECT_TRUE(w.sanitizer.pinned_pending());
    line_ = 7;
    w.sanitizer.host_touches(kRead, w.others);

    EXPECT_EQ(found_.size(), 1);
    const Finding& f = found_[0];
    EXPECT_TRUE(f.kind == FindingKind::kHostRead);
    EXPECT_TRUE(f.pinned && f.device == -1 && f.stream == -1);
    EXPECT_EQ(f.alloc_site, lent ? 0 : 5);  // nobody has allocated it here
    EXPECT_TRUE(f.first.site.site == 6 && f.second.site.site == 7);
    EXPECT_TRUE(f.second.device == -1 && f.second.stream == -1);
    EXPECT_EQ(f.second.task, 0);
    w.sanitizer.host_freed(w.other);
    EXPECT_TRUE(!w.sanitizer.pinned_pending());
    w.pin(w.other, lent);
  }
}

TEST(Finding, OfWhatTheHostUsesIsOfDeviceMemoryToo) {
  World w;
  w.write(w.one);
  w.sanitizer.host_touches(kRead, w.words);  // pinned memory only
  EXPECT_EQ(found_.size(), 0);
  w.sanitizer.host_uses(w.two, kRead, w.words);
  EXPECT_EQ(found_.size(), 1);
  EXPECT_TRUE(found_[0].kind == FindingKind::kReadWrite);
  EXPECT_EQ(w.sanitizer.counts().findings, 1);
  w.free();
  w.sanitizer.host_uses(w.two, kRead, w.words);
  EXPECT_EQ(found_.size(), 1);
}

TEST(Finding, IsRaisedWhereItIsRefused) {
  static int raised = 0;
  for (const bool refused : {false, true}) {
    World w({refused ? &refuse : &keep, [] { ++raised; }, nullptr});
    w.pin(w.memory);
    const KernelCall call{&kWrite, w.words};
    w.sanitizer.replays(w.one, &call, 1);
    EXPECT_EQ(raised, 0);
    w.sanitizer.host_touches(kWrite, w.words);
    EXPECT_EQ(raised, refused);
    w.sanitizer.published(w.one, refused);
    EXPECT_EQ(raised, 2 * refused);
  }
}

// Nobody need listen, and tasks run whatever is found.
TEST(Finding, IsCountedWhenNobodyListens) {
  World w({nullptr, nullptr, nullptr});
  Numbers ran;
  w.sanitizer.adopt(w.two, w.memory, sizeof w.memory);
  for (Stream* s : {&w.two, &w.direct}) {
    submit(*s, kWriteAndAppend, {word(&ran), 7, word(w.memory)});
    drain(*s);
  }
  w.pin(w.memory);
  w.write(w.two);
  w.sanitizer.host_touches(kWrite, w.words);
  EXPECT_EQ(ran, Numbers({7, 7}));
  EXPECT_EQ(w.sanitizer.counts().tasks, 3);
  EXPECT_EQ(w.sanitizer.counts().accesses, 3);
}

// A thread that has queued work on pinned memory is told, and only such a
// thread.
TEST(Finding, OfPinnedMemoryIsLookedForByWhoeverIsTold) {
  static int touched;
  touched = 0;
  World w({&keep, nullptr, [] { ++touched; }});
  w.pin(w.other);
  w.write(w.one);
  EXPECT_TRUE(touched == 0 && !w.sanitizer.pinned_pending());
  submit(w.one, kWrite, {word(w.other)});
  EXPECT_TRUE(touched == 1 && w.sanitizer.pinned_pending());
  EXPECT_TRUE(w.sanitizer.host_pending(w.other));
  drain(w.one);
  EXPECT_TRUE(!w.sanitizer.pinned_pending());
  EXPECT_TRUE(!w.sanitizer.host_pending(w.other));
  submit(w.one, kWrite, {word(w.other)});
  w.sanitizer.clear();
  EXPECT_TRUE(!w.sanitizer.pinned_pending());
}

TEST(Sanitizer, LooksAtNoTaskWithoutMemory) {
  World w;
  Numbers got;
  w.two.wait_for(w.one, 0);
  append(w.one, got, 1);
  host_wait(w.one, 1, WaitReason::kStreamSync);
  EXPECT_EQ(got.size(), 1);
  EXPECT_EQ(w.sanitizer.counts().tasks, 0);
  w.write(w.one);
  EXPECT_EQ(w.sanitizer.counts().tasks, 1);
  EXPECT_EQ(w.sanitizer.counts().accesses, 1);
  EXPECT_EQ(w.sanitizer.counts().findings, 0);
}

// A graph's nodes that set flags and wait for them order what is around them. A
// node that takes the flag clears it, so what comes before the next waiter's
// tasks is not known, and these are not checked yet.
TEST(Sanitizer, TakesTheFlagsOfAReplayForAnOrder) {
  const uint64_t set[] = {7, 1}, lower[] = {7, 0}, wait[] = {7, 0, 1};
  for (const npu_kernel* waiting : {&kTakeFlag, &kReachFlag})
    for (const bool lowered : {false, true}) {
      World w;
      w.allocate(w.two, w.other);
      w.replay(w.one, {{&kWrite, w.words}, {&kSetFlag, set}});
      w.replay(w.two, {{waiting, wait}, {&kRead, w.words}});
      EXPECT_EQ(found_.size(), 0);
      const KernelCall down{&kSetFlag, lower};
      if (lowered) w.sanitizer.replays(w.one, &down, 1);
      w.sanitizer.flag_awaited(&w.three, 7, false);
      submit(w.two, kWrite, {word(w.other)});
      submit(w.three, kRead, {word(w.other)});
      const bool still_up = waiting == &kReachFlag && !lowered;
      EXPECT_EQ(found_.size(), still_up);
    }
}

TEST(Sanitizer, LooksAtWhatIsBehindAFlagInAReplay) {
  World w;
  w.allocate(w.one, w.other);
  const uint64_t set[] = {7, 1};
  const KernelCall calls[] = {{&kWrite, w.others}, {&kSetFlag, set},
                              {&kWrite, w.words},  {&kSetFlag, set},
                              {&kWrite, w.words},  {&kWrite, w.others}};
  w.sanitizer.replays(w.one, calls + 1, 4);  // without the first and the last
  submit(w.one, kNothing, {});
  submit(w.two, kRead, {word(w.other)});
  EXPECT_EQ(found_.size(), 0);
  w.read(w.two);
  EXPECT_EQ(found_.size(), 1);
}

// Tasks behind the one that sets the flag are not ordered before the waiter.
TEST(Sanitizer, OrdersNothingBehindTheFlagOfAReplay) {
  World w;
  const uint64_t set[] = {7, 1};
  w.replay(w.one, {{&kSetFlag, set}});
  w.write(w.one);
  w.sanitizer.flag_awaited(&w.two, 7, true);
  w.read(w.two);
  EXPECT_EQ(found_.size(), 1);
}

// A task that waits for a flag is not yet known to come after anything but the
// earlier tasks of its own stream; accesses of those are still checked.
TEST(Sanitizer, FindsWhatAStreamDidBeforeItWaitsForAFlag) {
  World w;
  w.write(w.two);
  w.sanitizer.flag_awaited(&w.two, 7, true);
  w.read(w.one);
  EXPECT_EQ(found_.size(), 1);
}

TEST(Sanitizer, ForgetsFlagsWhenItIsCleared) {
  World w;
  w.write(w.one);
  w.sanitizer.flag_raised(w.one, w.one.tail(), 7);
  w.sanitizer.clear();
  w.sanitizer.allocated(w.one, w.memory, sizeof w.memory);
  w.sanitizer.flag_awaited(&w.two, 7, true);
  w.write(w.one);
  w.read(w.two);  // who comes before is not known
  EXPECT_EQ(found_.size(), 0);
}

TEST(Sanitizer, KnowsNothingOfMemoryThatItWasNotTold) {
  Lines lines;
  World w;
  w.sanitizer.stream_recorded(w.two, w.other);
  w.sanitizer.freed(w.one, w.other, sizeof w.other, FreedTo::kStream);
  w.sanitizer.host_freed(w.other);
  w.sanitizer.segment_freed(0, w.other, sizeof w.other);
  EXPECT_TRUE(!w.sanitizer.host_pending(w.other));
  w.sanitizer.host_touches(kWrite, w.others);
  w.sanitizer.host_uses(w.one, kWrite, w.others);
  EXPECT_EQ(found_.size(), 0);
  // Freed twice, it is the first that counts.
  for (const uint32_t site : {8, 9}) {
    line_ = site;
    w.free();
  }
  w.read(w.one);
  EXPECT_EQ(found_[0].free_site, 8);
}

TEST(Sanitizer, SaysWhoseABlockIs) {
  for (const bool adopted : {false, true}) {
    World w;
    if (adopted)
      w.sanitizer.adopt(w.two, w.other, sizeof w.other);
    else
      w.allocate(w.two, w.other);
    for (Stream* s : {&w.one, &w.two}) submit(*s, kWrite, {word(w.other)});
    EXPECT_EQ(found_.size(), 1);
    EXPECT_TRUE(found_[0].stream == 91 && found_[0].free_site == 0);
  }
}

// While the hook is asked, other threads may free the memory.
World* asked_ = nullptr;
TEST(Sanitizer, LooksAgainForMemoryWhenSomebodyHasBeenAsked) {
  World w({[](const Finding*, size_t) {
             asked_->sanitizer.segment_freed(0, asked_->memory,
                                             sizeof asked_->memory);
             return false;
           },
           nullptr, nullptr});
  asked_ = &w;
  for (Stream* s : {&w.one, &w.two}) w.write(*s);
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
  } sink;
  for (const bool captured : {false, true}) {
    World w;
    if (captured) w.one.set_sink(&sink);
    w.allocate(w.one, w.other);
    w.one.set_sink(nullptr);
    w.sanitizer.freed(w.one, w.other, sizeof w.other, FreedTo::kGraph);
    const KernelCall call{&kWrite, w.others};
    w.sanitizer.replays(w.one, &call, 1);
    EXPECT_EQ(found_.size(), captured ? 0 : 1);
    EXPECT_EQ(w.sanitizer.counts().accesses, captured ? 1 : 0);
    submit(w.one, kWrite, {word(w.other)});
    EXPECT_EQ(found_.size(), captured ? 1 : 2);
  }
}

TEST(Sanitizer, CountsTheTimeAndMemoryThatItTakes) {
  DeviceBlock& block = segment().devices[0];
  World w;
  const uint64_t before = block.sanitizer_ns.load(), began = now_ns();
  block.sanitizer_bytes.store(0);
  for (int i = 0; i < 64; ++i) w.write(w.one);
  const uint64_t took = block.sanitizer_ns.load() - before;
  // What is measured counts for sixteen calls.
  EXPECT_TRUE(took > 0 && took < 17 * (now_ns() - began));
  EXPECT_EQ(block.sanitizer_bytes.load(), uint64_t(shadow_bytes.load()));
  w.sanitizer.clear();
  EXPECT_EQ(block.sanitizer_bytes.load(), 0);
}

TEST(Sanitizer, RefusesNoTaskWhereItIsClearedByWhoeverIsTold) {
  World w({[](const Finding*, size_t) {
             asked_->sanitizer.clear();
             return false;
           },
           nullptr, nullptr});
  Numbers ran;
  asked_ = &w;
  w.write(w.one);
  submit(w.two, kWriteAndAppend, {word(&ran), 7, word(w.memory)});
  w.two.stop();
  EXPECT_EQ(ran, Numbers({7}));
}

}  // namespace
}  // namespace npu
