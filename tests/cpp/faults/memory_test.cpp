// There is no memory for a queue or for long arguments: whoever asks gets an
// error, and goes on when there is memory again.
#include <stdio.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "csrc/engine/engine.h"
#include "tests/cpp/check.h"
#include "tests/cpp/child.h"
#include "tests/cpp/graph/lanes.h"
#include "tests/cpp/kernels.h"
#include "tests/cpp/no_memory.h"

namespace npu {
namespace {

using check::in_child;
using check::kAppend;
using check::kNothing;
using check::NoMemory;
using check::NoNew;
using check::submit;
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

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

#ifndef __SANITIZE_ADDRESS__  // its allocator has memory when NoMemory says no
TEST(NoMemory, RefusesLongArgumentsAndChangesNothing) {
  const auto ended = in_child([] {
    Stream& stream = current_stream(0);
    Stream& direct = *find_stream(0, 2 << 5);
    submit(stream, kNothing, {});
    submit(direct, kNothing, {});
    check::drain(stream);
    for (Stream* s : {&stream, &direct}) {
      const uint64_t before = s->tail();
      std::string text;
      {
        const NoMemory none;
        text = refusal([&] { submit(*s, kNothing, {}, 3000); });
      }
      if (!has(text, "no host memory for the 3000 words")) return 1;
      if (s->tail() != before || s->failed()) return 2;
      if (!submit(*s, kNothing, {}, 3000)) return 3;
    }
    check::drain(stream);
    return stream.idle() && direct.idle() ? 0 : 4;
  });
  EXPECT_EQ(ended.code, 0);
}
#endif

TEST(NoMemory, OpensNoPlaceInAQueueThatItCannotFill) {
  const auto ended = in_child([] {
    Stream& stream = current_stream(0);
    submit(stream, kNothing, {});
    check::drain(stream);
    std::string text;
    {
      const NoMemory none;
      text = refusal([&] {
        Submission s;
        stream.try_begin(3000, s, {});
      });
    }
    if (!has(text, "no host memory for the 3000 words")) return 1;
    std::vector<uint64_t> got;
    submit(stream, kAppend, {word(&got), 1});
    check::drain(stream);
    return got.size() == 1 ? 0 : 2;
  });
  EXPECT_EQ(ended.code, 0);
}

TEST(NoMemory, RefusesAStreamAndMakesItLater) {
  const auto ended = in_child([] {
    submit(current_stream(0), kNothing, {});
    check::drain(current_stream(0));
    std::string text;
    {
      const NoMemory none;
      text = refusal([] { find_stream(0, 3 << 5); });
    }
    if (!has(text, "npu:0 stream 96: no host memory for its queue")) return 1;
    Stream& stream = *find_stream(0, 3 << 5);
    std::vector<uint64_t> got;
    submit(stream, kAppend, {word(&got), 1});
    check::drain(stream);
    return got.size() == 1 ? 0 : 2;
  });
  EXPECT_EQ(ended.code, 0);
}

// The graph owns the task before anybody can refuse it.
TEST(NoMemory, EndsACaptureInAnErrorAndTheNextOneWorks) {
  const auto ended = in_child([] {
    Stream& stream = check::side_stream();
    std::vector<uint64_t> got;
    Graph graph;
    graph.capture_begin(stream, 0, CaptureMode::kGlobal);
    submit(stream, kAppend, {word(&got), 1});
    Submission s;
    if (!stream.begin(2, s)) return 1;
    s.task->kernel = &kAppend;
    s.words[0] = word(&got);
    s.words[1] = 2;
    {
      const NoNew none;
      stream.commit(s);
    }
    if (!has(check::refused([&] { graph.capture_end(stream); }),
             "no host memory"))
      return 2;
    graph.capture_begin(stream, 0, CaptureMode::kGlobal);
    submit(stream, kAppend, {word(&got), 3});
    graph.capture_end(stream);
    if (!check::replay(graph, stream)) return 3;
    check::drain(stream);
    return got == std::vector<uint64_t>{3} ? 0 : 4;
  });
  EXPECT_EQ(ended.err, "");
  EXPECT_EQ(ended.code, 0);
}

std::optional<NoNew> taken_away;

// words: none. Takes the memory away, and fails.
int run_fail_without_memory(const npu_kernel*, const uint64_t*,
                            npu_failure* failure) {
  snprintf(failure->text, sizeof failure->text,
           "failed at length, so that its text needs memory of its own");
  taken_away.emplace();
  return failure->code = NPU_ERROR;
}
constexpr npu_kernel kFailWithoutMemory{
    run_fail_without_memory, "test::fail_without_memory", nullptr, 0};

TEST(NoMemory, LeavesALauncherThatNotesAFailureAlive) {
  const auto ended = in_child([] {
    Stream& stream = current_stream(0);
    std::vector<uint64_t> got;
    submit(stream, kNothing, {});
    check::drain(stream);
    submit(stream, kFailWithoutMemory, {});
    while (!stream.failed()) std::this_thread::yield();
    taken_away.reset();
    const auto error = stream.error();
    if (!error || error->task != 1) return 1;
    stream.clear_error();
    submit(stream, kAppend, {word(&got), 1});
    check::drain(stream);
    return got.size() == 1 ? 0 : 2;
  });
  EXPECT_EQ(ended.code, 0);
}

}  // namespace
}  // namespace npu
