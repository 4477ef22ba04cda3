// The list of observers, and the records of tasks in traces.
#include "csrc/observe/trace.h"
#include "tests/cpp/kernels.h"
#include "tests/cpp/system.h"

namespace npu {
namespace {

TEST(Observers, AreAllToldAndWhoRunsTheTasksFirst) {
  struct Told final : Observer {
    std::vector<const Told*>* told = nullptr;
    bool answer = false;
    unsigned asks = 0;
    unsigned wants() const override { return asks; }
    bool flag_polled() override {
      told->push_back(this);
      return answer;
    }
    void host_freed(const void*) override { told->push_back(this); }
  } a, b;
  std::vector<const Told*> told;
  a.told = b.told = &told;
  EXPECT_TRUE(!observers() && !tell_observers(&Observer::flag_polled));
  list_observer(a, true);
  EXPECT_TRUE(observers() && !observed(Observer::kTasks));
  b.asks = Observer::kRuns;
  list_observer(b, true);
  list_observer(b, true);  // is listed already
  EXPECT_TRUE(observed(Observer::kRuns) && !observed(Observer::kTimes));
  tell_observers(&Observer::host_freed, nullptr);
  EXPECT_TRUE(told == std::vector<const Told*>({&b, &a}));
  EXPECT_TRUE(!tell_observers(&Observer::flag_polled));
  b.answer = true;
  EXPECT_TRUE(tell_observers(&Observer::flag_polled));
  EXPECT_EQ(told.size(), 6);
  list_observer(b, false);
  EXPECT_TRUE(observers() && !observed(Observer::kRuns));
  list_observer(a, false);
  EXPECT_TRUE(!observers());
}

TEST(Observers, AreRefusedWhereThereIsNoPlaceForMore) {
  struct Runs final : Observer {
    unsigned wants() const override { return kRuns; }
  } runs[2];
  Observer others[8];
  list_observer(runs[0], true);
  EXPECT_THROWS(list_observer(runs[1], true), std::runtime_error);
  for (int i = 0; i < 7; ++i) list_observer(others[i], true);
  EXPECT_THROWS(list_observer(others[7], true), std::runtime_error);
  list_observer(others[3], false);
  list_observer(others[7], true);
  list_observer(runs[0], false);
  for (Observer& o : others) list_observer(o, false);
  EXPECT_TRUE(!observers());
}

TraceFile* opened(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR);
  if (fd < 0) return nullptr;
  void* memory = mmap(nullptr, sizeof(TraceFile), PROT_READ | PROT_WRITE,
                      MAP_SHARED, fd, 0);
  close(fd);
  return static_cast<TraceFile*>(memory);
}
// A folder in which this process writes its trace.
struct Traces : TemporaryFolder {
  Traces() { setenv("NPU_TRACE_DIR", path.c_str(), 1); }
  TraceFile* mine() const {
    return opened(path + "/" + std::to_string(getpid()));
  }
};

TraceRing* ring_of(TraceFile& file, int device, int64_t stream) {
  for (TraceRing& ring : file.rings)
    if (ring.used.load() && ring.device == device && ring.stream == stream)
      return &ring;
  return nullptr;
}
std::string name_at(const TraceFile& file, uint32_t at) {
  uint16_t length;
  memcpy(&length, file.names + at, sizeof length);
  return std::string(file.names + at + sizeof length, length);
}
// Waits for `n` records: the launcher may write the last ones a little late.
std::vector<TraceRecord> records(const TraceRing& ring, size_t n) {
  while (ring.written.load() < n) sched_yield();
  return {ring.records, ring.records + n};
}

TEST_ALONE(Trace, HasARecordOfEachTaskAndOfTheLineThatLaunchedIt) {
  const Traces traces;
  publish_site(3, "train.py:7 in step");
  Stream& first = next_stream(0, StreamPool::kNormal);
  Stream& second = next_stream(0, StreamPool::kNormal);
  TraceFile* const file = traces.mine();
  EXPECT_TRUE(file && trace_wanted());
  const uint64_t began = ticks();
  Gate gate;
  hold(first, gate);
  submit(first, kNothing, {}, 0, {3, 0});
  second.wait_for(first, 2);
  Event event(Timing::kOn);
  event.record(second);
  for (const uint32_t unpublished : {4u, uint32_t(kMaxSites)})
    submit(second, kFail, {NPU_ERROR}, 0, {unpublished, 0});
  gate.open();
  synchronize_device(0, WaitReason::kDeviceSync);

  const auto a = records(*ring_of(*file, 0, first.id()), 2);
  const auto b = records(*ring_of(*file, 0, second.id()), 4);
  EXPECT_EQ(name_at(*file, a[0].name), "test::gate");
  EXPECT_EQ(name_at(*file, a[1].name), "test::nothing");
  EXPECT_EQ(name_at(*file, b[0].name), "wait");
  EXPECT_EQ(name_at(*file, b[1].name), "record");
  EXPECT_EQ(name_at(*file, b[2].name), "test::fail");
  EXPECT_EQ(b[2].name, b[3].name);
  EXPECT_EQ(name_at(*file, a[1].line), "train.py:7 in step");
  for (const TraceRecord& record : {a[0], b[2], b[3]})
    EXPECT_EQ(record.line, kNoTraceName);
  EXPECT_EQ(a[0].depth, 2);  // itself, and the one behind it
  EXPECT_EQ(a[1].depth, 1);
  const TraceOutcome outcomes[] = {TraceOutcome::kDone, TraceOutcome::kDone,
                                   TraceOutcome::kFailed,
                                   TraceOutcome::kDropped};
  const TaskKind kinds[] = {TaskKind::kWait, TaskKind::kTimestamp,
                            TaskKind::kKernel, TaskKind::kKernel};
  uint64_t last = began;
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(b[i].position, i);
    EXPECT_EQ(b[i].kind, uint8_t(kinds[i]));
    EXPECT_EQ(b[i].outcome, uint8_t(outcomes[i]));
    EXPECT_TRUE(b[i].submitted >= began && b[i].submitted <= b[i].started);
    EXPECT_TRUE(last <= b[i].started && b[i].started <= b[i].ended);
    last = b[i].ended;
  }
  EXPECT_TRUE(b[0].other_device == 0 && b[0].other_stream == first.id());
  EXPECT_EQ(b[0].other_number, 2);
  EXPECT_TRUE(b[1].other_device == 0 && b[1].other_number == 0);
  EXPECT_EQ(segment().process.trace_dropped.load(), 0);
  second.clear_error();
}

TEST_ALONE(Trace, HasAHeaderThatSaysHowToReadIt) {
  const Traces traces;
  const uint64_t began = now_ns();
  submit(current_stream(0), kNothing, {});
  const TraceFile& file = *traces.mine();
  const TraceHeader& header = file.header;
  EXPECT_TRUE(!memcmp(header.magic, kTraceMagic, sizeof kTraceMagic));
  EXPECT_EQ(header.version, kTraceVersion);
  EXPECT_EQ(header.pid, getpid());
  EXPECT_EQ(header.process_start, segment().header.process_start);
  EXPECT_TRUE(header.ns_per_tick == ns_per_tick());
  EXPECT_TRUE(header.monotonic_ns >= began && header.monotonic_ns <= now_ns());
  EXPECT_TRUE(header.ticks > 0 && header.ticks <= ticks());
  EXPECT_EQ(header.realtime_ns - header.monotonic_ns,
            segment().header.realtime_ns - segment().header.monotonic_ns);
  EXPECT_TRUE(header.rings == kTraceRings && header.records == kTraceRecords);
  EXPECT_EQ(header.rings_at, offsetof(TraceFile, rings));
  EXPECT_EQ(header.ring_bytes, sizeof(TraceRing));
  EXPECT_EQ(header.names_at, offsetof(TraceFile, names));
  EXPECT_EQ(header.name_bytes, kTraceNameBytes);
  EXPECT_TRUE(header.later_ticks.load() >= header.ticks);
  const uint64_t later = header.later_ns.load();
  calibrate_trace();
  EXPECT_TRUE(header.later_ns.load() > later);
  EXPECT_TRUE(header.later_ns.load() <= now_ns());
}

// add() returns false where it overwrites a record that a following reader has
// not yet read; the first record that it overwrites here has been read.
TEST(Trace, CountsWhatItWritesOver) {
  static TraceRing ring;
  TraceRecord record{};
  for (uint64_t i = 0; i < kTraceRecords + 5; ++i) {
    record.position = i;
    EXPECT_TRUE(add(ring, record));  // nobody follows
  }
  EXPECT_EQ(ring.written.load(), kTraceRecords + 5);
  EXPECT_EQ(ring.records[4].position, kTraceRecords + 4);
  EXPECT_EQ(ring.records[5].position, 5);
  ring.taken = 6;
  EXPECT_TRUE(add(ring, record));  // number 65541: in place of 5
  EXPECT_TRUE(!add(ring, record));
  ring.taken = 7;
  EXPECT_TRUE(!add(ring, record));
}

// A table that is full takes no more texts, and keeps those that it has.
TEST_ALONE(Trace, NamesAreAsManyAsThereIsRoomFor) {
  const Traces traces;
  EXPECT_EQ(trace_text("early"), kNoTraceName);
  submit(current_stream(0), kNothing, {});
  // The launcher adds names, too.
  synchronize_device(0, WaitReason::kDeviceSync);
  const uint32_t first = trace_text("early");
  EXPECT_TRUE(first != kNoTraceName);
  const TraceFile& file = *traces.mine();
  const std::string longest(300, 'x');
  EXPECT_EQ(name_at(file, trace_text(longest)), std::string(255, 'x'));
  uint32_t last = 0, n = 0;
  for (uint32_t at;
       (at = trace_text(std::string(200, 'y') + std::to_string(n))) !=
       kNoTraceName;
       ++n)
    last = at;
  EXPECT_TRUE(last > kTraceNameBytes - 500 && last < kTraceNameBytes);
  EXPECT_TRUE(file.header.names_used.load() <= kTraceNameBytes);
  EXPECT_TRUE(file.header.names_used.load() > kTraceNameBytes - 300);
  EXPECT_EQ(trace_text("early"), first);
  EXPECT_EQ(name_at(file, first), "early");
  // To the last byte.
  const uint32_t left = kTraceNameBytes - file.header.names_used.load() - 2;
  if (left < 256) {
    EXPECT_EQ(trace_text(std::string(left + 1, 'z')), kNoTraceName);
    EXPECT_TRUE(trace_text(std::string(left, 'z')) != kNoTraceName);
    EXPECT_EQ(file.header.names_used.load(), kTraceNameBytes);
  }
}

TEST_ALONE(Trace, HasAsManyRingsAsThereAre) {
  const Traces traces;
  EXPECT_TRUE(claim_trace_ring(0, 1) == nullptr);  // no file yet
  submit(current_stream(0), kNothing, {});         // the first ring
  for (uint32_t i = 1; i < kTraceRings; ++i) {
    const TraceRing* ring = claim_trace_ring(1, i);
    EXPECT_TRUE(ring && ring->device == 1 && ring->stream == int64_t(i));
    EXPECT_EQ(ring->used.load(), 1);
  }
  EXPECT_TRUE(claim_trace_ring(1, 99) == nullptr);
  EXPECT_TRUE(ring_of(*traces.mine(), 1, kTraceRings - 1) != nullptr);
}

}  // namespace
}  // namespace npu
