#include <string>
#include <vector>

#include "csrc/taskqueue/stream.h"
#include "tests/cpp/check.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

using check::Gate;
using check::kAppend;
using check::kFail;
using check::kGate;
using check::submit;
using check::word;

void drain(Stream& stream) {
  while (!stream.idle()) sched_yield();
}

std::string name(const Stream& stream, uint64_t task) {
  const uint64_t key = stream.block().recent[task % kRecentTasks].name.load();
  return key ? reinterpret_cast<const char*>(key) : "";
}
uint64_t site(const Stream& stream, uint64_t task) {
  return stream.block().recent[task % kRecentTasks].site.load();
}

bool submit_at(Stream& stream, uint32_t site, std::vector<uint64_t>* got) {
  Submission s;
  if (!stream.begin(2, s, {site, 0})) return false;
  s.task->kernel = &kAppend;
  s.words[0] = word(got);
  s.words[1] = site;
  stream.commit(s);
  return true;
}

TEST(Recent, NamesEachTaskAndWhereItWasLaunched) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  Stream direct(0, 64, 0, StreamMode::kInline);
  std::vector<uint64_t> got, got_directly;
  for (uint32_t i = 0; i < 3; ++i) submit_at(stream, 10 + i, &got);
  submit_at(direct, 20, &got_directly);
  drain(stream);

  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(name(stream, i), "test::append");
    EXPECT_EQ(site(stream, i), 10 + i);
  }
  EXPECT_EQ(site(direct, 0), 20);
}

TEST(Recent, KeepsTheLastOnesOnly) {
  Stream stream(0, 0, 0, StreamMode::kQueued);
  std::vector<uint64_t> got;
  const uint32_t n = uint32_t(kRecentTasks) + 5;
  for (uint32_t i = 0; i < n; ++i) submit_at(stream, 100 + i, &got);
  drain(stream);

  for (uint64_t i = n - kRecentTasks; i < n; ++i)
    EXPECT_EQ(site(stream, i), 100 + i);
}

TEST(Recent, ShowsTheTaskThatRunsAndWhatBecameOfTheOthers) {
  Stream first(0, 1, 0, StreamMode::kQueued);
  Stream second(0, 2, 0, StreamMode::kQueued);
  Gate gate, before;
  submit(second, kGate, {word(&before)});
  submit(first, kGate, {word(&gate)});
  submit(first, kFail, {NPU_ERROR});
  submit(first, kFail, {NPU_ERROR});
  EXPECT_TRUE(second.wait_for(first, first.tail()));
  gate.wait_until_entered();

  EXPECT_EQ(name(first, 0), "test::gate");

  before.open();
  gate.open();
  drain(first);
  drain(second);
  EXPECT_EQ(site(first, 1), RecentTask::kFailed);
  EXPECT_EQ(site(first, 2), RecentTask::kDropped);
  EXPECT_EQ(name(second, 1), "wait");
}

}  // namespace
}  // namespace npu
