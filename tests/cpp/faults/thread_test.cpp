// No thread can be started: calls that need one raise, and work when there is
// one.
#include <signal.h>

#include <stdexcept>
#include <string>

#include "csrc/engine/engine.h"
#include "csrc/engine/stillness.h"
#include "csrc/graph/graph.h"
#include "tests/cpp/check.h"
#include "tests/cpp/child.h"
#include "tests/cpp/graph/lanes.h"
#include "tests/cpp/kernels.h"
#include "tests/cpp/no_threads.h"

namespace npu {
namespace {

using check::capture_two_lanes;
using check::in_child;
using check::kAppend;
using check::NoThreads;
using check::replay;
using check::submit;
using check::wait;
using check::word;

template <typename Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

bool takes_signals() {
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  return !sigismember(&blocked, SIGINT) && !sigismember(&blocked, SIGTERM);
}

TEST(NoThreads, RefuseTheTaskWithAReasonAndLeaveTheCallerItsSignals) {
  const auto ended = in_child([] {
    Stream& stream = current_stream(0);
    std::vector<uint64_t> got;
    {
      const NoThreads none;
      const std::string text =
          refusal([&] { submit(stream, kAppend, {word(&got), 1}); });
      if (text.find("npu:0 stream 0: no thread") == std::string::npos) return 1;
      if (!takes_signals()) return 2;
      if (stream.tail() != 0 || stream.failed()) return 3;
    }
    if (!submit(stream, kAppend, {word(&got), 2})) return 4;
    wait(stream);
    return got == std::vector<uint64_t>{2} ? 0 : 5;
  });
  EXPECT_EQ(ended.code, 0);
}

// The launcher of the first stream stands still by the time the second one
// cannot get its own. Nothing that it stands in may go.
TEST(NoThreads, LetGoTheStreamsThatStandStill) {
  const auto ended = in_child([] {
    Stream &a = check::side_stream(), &b = check::side_stream();
    std::vector<uint64_t> got;
    submit(a, kAppend, {word(&got), 1});
    wait(a);
    {
      const NoThreads none;
      if (refusal([] { Stillness stillness(0, 1'000'000'000); }).empty())
        return 1;
    }
    if (!submit(a, kAppend, {word(&got), 2})) return 2;
    wait(a);
    if (!submit(b, kAppend, {word(&got), 3})) return 3;
    wait(b);
    return got == std::vector<uint64_t>({1, 2, 3}) ? 0 : 4;
  });
  EXPECT_EQ(ended.code, 0);
}

// One of a graph's streams has its launcher and the other cannot get one. The
// place that the replay had taken in the first stream must not hold that stream
// up.
TEST(NoThreads, LeaveTheOtherStreamsOfAGraphUsable) {
  const auto ended = in_child([] {
    Stream &a = check::side_stream(), &b = check::side_stream();
    std::vector<uint64_t> got;
    Graph graph;
    capture_two_lanes(graph, a, b, got);
    submit(a, kAppend, {word(&got), 7});
    wait(a);
    {
      const NoThreads none;
      if (refusal([&] { replay(graph, a); }).empty()) return 1;
    }
    submit(a, kAppend, {word(&got), 8});
    wait(a);
    if (!replay(graph, a)) return 2;
    wait(a);
    return got == std::vector<uint64_t>({7, 8, 1, 2, 3}) ? 0 : 3;
  });
  EXPECT_EQ(ended.code, 0);
}

}  // namespace
}  // namespace npu
