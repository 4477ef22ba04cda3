// Foreign work: when it runs, and when its state is released.
#include "csrc/interop/foreign.h"
#include "csrc/observe/work_names.h"
#include "csrc/taskqueue/deferred_delete.h"
#include "csrc/taskqueue/task_sink.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

struct State {
  int runs = 0, releases = 0, code = NPU_OK;
};
int run(void* state, uint64_t, npu_failure& failure) {
  auto& s = *static_cast<State*>(state);
  ++s.runs;
  EXPECT_EQ(s.releases, 0);
  snprintf(failure.text, sizeof failure.text, "foreign");
  return s.code;
}
void release(void* state) { ++static_cast<State*>(state)->releases; }

ForeignWork work(State& state) {
  return {"test::foreign", run, release, &state, {}};
}
TEST(Foreign, RunsOnceOrFailsItsStreamAndIsReleasedAfterThat) {
  for (const StreamMode mode : {StreamMode::kQueued, StreamMode::kInline})
    for (const bool released : {true, false})
      for (const int code : {NPU_OK, NPU_VALUE_ERROR}) {
        Stream stream(0, 70, 0, mode);
        State state{.code = code};
        ForeignWork its = work(state);
        if (!released) its.release = nullptr;
        EXPECT_TRUE(submit_foreign(stream, its));
        drain(stream);
        EXPECT_TRUE(state.runs == 1 && state.releases == released);
        EXPECT_EQ(stream.failed(), code != NPU_OK);
        if (!stream.failed()) continue;
        EXPECT_EQ(stream.error()->code, code);
        EXPECT_EQ(stream.error()->text, "foreign");
        EXPECT_EQ(stream.error()->op, "test::foreign");
      }
}

// The object of a running task stays while many more are submitted and the
// memory of finished ones is used again.
TEST(Foreign, IsKeptWhileItRuns) {
  Stream stream(0, 70, 0, StreamMode::kQueued);
  struct Held : State {
    Gate gate;
  } held;
  ForeignWork holding = work(held);
  holding.run = [](void* state, uint64_t, npu_failure& failure) {
    auto* const held = static_cast<Held*>(static_cast<State*>(state));
    held->gate.pass();
    return run(state, 0, failure);
  };
  submit_foreign(stream, holding);
  held.gate.wait_until_entered();

  std::vector<State> others(300);
  for (State& other : others) submit_foreign(stream, work(other));
  drain(stream, held.gate);

  EXPECT_TRUE(held.runs == 1 && held.releases == 1);
  for (const State& other : others)
    EXPECT_TRUE(other.runs == 1 && other.releases == 1);
}

TEST(Foreign, NamesAreKeptOnceWhereOtherProcessesCanReadThem) {
  std::string name = "test::interned";
  const char* const kept = intern_name(name);
  name[0] = 'b';
  EXPECT_TRUE(intern_name("test::interned") == kept);
  EXPECT_TRUE(intern_name(name) != kept);
  int found = 0;
  for (const NameEntry& entry : segment().names)
    if (entry.key.load() == word(kept)) {
      EXPECT_EQ(std::string(entry.text), "test::interned");
      ++found;
    }
  EXPECT_EQ(found, 1);
}

TEST(Foreign, OfAnotherKernelHasNoEnd) {
  EXPECT_TRUE(captured_work(&kNothing).kernel == nullptr);
}

struct Kept {
  explicit Kept(int& gone) : gone(gone) {}
  ~Kept() { ++gone; }
  int& gone;
};

TEST(DeferredDelete, KeepsWhatAStreamMayStillUse) {
  Streams s;
  DeferredDelete<Kept> deferred;
  int gone = 0;
  EXPECT_TRUE(works(s.one));
  submit(s.two, kGate, {word(&s.gate)});
  deferred.after({&s.one, 1}, std::make_unique<Kept>(gone));
  deferred.after(
      [&](std::vector<StreamPoint>& points) {
        points = {{&s.one, 1}, {&s.two, 1}};
      },
      std::make_unique<Kept>(gone));
  deferred.collect();
  EXPECT_EQ(gone, 1);
  drain(s.two, s.gate);
  deferred.collect();
  EXPECT_EQ(gone, 2);
}

// It collects only when its size has doubled, so each object is looked at a
// bounded number of times, however few are over.
TEST(DeferredDelete, CollectsByItselfWhenItIsFull) {
  Stream stream(0, 71, 0, StreamMode::kQueued);
  DeferredDelete<Kept> deferred;
  int gone = 0;
  const auto keep = [&](int n, uint64_t number) {
    while (n--) deferred.after({&stream, number}, std::make_unique<Kept>(gone));
  };
  keep(63, 0);
  EXPECT_EQ(gone, 0);
  keep(1, 0);
  EXPECT_EQ(gone, 64);
  Gate gate;
  submit(stream, kGate, {word(&gate)});
  keep(64, 1);
  keep(127, 0);  // with those that stay, one less than twice as many and 64
  EXPECT_EQ(gone, 64);
  keep(1, 0);
  EXPECT_EQ(gone, 64 + 128);
  drain(stream, gate);
  deferred.collect();
  EXPECT_EQ(gone, 64 + 128 + 64);
}

TEST(WorkNames, SayWhatKindOfWorkATaskIs) {
  const std::pair<const char*, Work> all[] = {
      {kHostToDeviceName, Work::kHostToDevice},
      {kDeviceToHostName, Work::kDeviceToHost},
      {kOnDeviceName, Work::kOnDevice},
      {kPluggableFreeName, Work::kHost},
      {kHaltName, Work::kHost},
      {kWaitName, Work::kEvent},
      {kRecordName, Work::kEvent},
      {"memcpy", Work::kKernel}};
  for (const auto& [name, work] : all) {
    EXPECT_TRUE(work_of(name) == work);
    EXPECT_EQ(is_copy(name), work == Work::kHostToDevice ||
                                 work == Work::kDeviceToHost ||
                                 work == Work::kOnDevice);
  }
}

}  // namespace
}  // namespace npu
