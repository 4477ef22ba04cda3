// Replays whose nodes run on several threads.
#include "csrc/graph/parallel.h"

#include <string.h>

#include <random>

#include "csrc/graph/makespan.h"
#include "tests/cpp/check.h"
#include "tests/cpp/graph/lanes.h"

namespace npu {
namespace {

using check::side_stream;
using check::submit;
using check::wait;
using check::word;

constexpr int64_t kSizes[] = {16}, kStrides[] = {1};
// Of 16 numbers each: words 0 and 1 are read, word 2 is written.
const npu_view kViews[] = {{kSizes, kStrides, 1, 8, 0, NPU_READ},
                           {kSizes, kStrides, 1, 8, 1, NPU_READ},
                           {kSizes, kStrides, 1, 8, 2, NPU_WRITE}};

// Not commutative, so that another order leaves other numbers.
int run_mix(const npu_kernel*, const uint64_t* words, npu_failure*) {
  const auto* a = reinterpret_cast<const uint64_t*>(words[0]);
  const auto* b = reinterpret_cast<const uint64_t*>(words[1]);
  auto* const to = reinterpret_cast<uint64_t*>(words[2]);
  for (int i = 0; i < 16; ++i) to[i] = to[i] * 31 + a[i] * 7 + (b[i] ^ 5);
  return NPU_OK;
}
int run_fail_on_zero(const npu_kernel*, const uint64_t* words,
                     npu_failure* failure) {
  if (*reinterpret_cast<const uint64_t*>(words[0])) return NPU_OK;
  snprintf(failure->text, sizeof failure->text, "it is zero");
  return failure->code = NPU_VALUE_ERROR;
}
const npu_kernel kMix{run_mix, "mix", kViews, 3};
const npu_kernel kFailOnZero{run_fail_on_zero, "fail on zero", kViews, 3};

// Sets the mode, and gives the device as many cores as there are threads.
struct Always {
  Always() : before_(set_parallel_mode(ParallelMode::kAlways)) {}
  ~Always() { set_parallel_mode(before_); }
  void off() const { set_parallel_mode(ParallelMode::kOff); }

 private:
  const ParallelMode before_;
};

constexpr int kPlaces = 6;
using Memory = uint64_t[kPlaces][16];

void fill(Memory& memory) {
  for (int p = 0; p < kPlaces; ++p)
    for (int i = 0; i < 16; ++i) memory[p][i] = uint64_t(p * 100 + i);
}

void capture_program(Graph& graph, Stream& stream, Memory& memory,
                     unsigned seed, int nodes) {
  std::mt19937 random(seed);
  graph.capture_begin(stream, 0, CaptureMode::kGlobal);
  graph.threads = 3;
  for (int n = 0; n < nodes; ++n) {
    const auto place = [&] { return word(memory[random() % kPlaces]); };
    submit(stream, kMix, {place(), place(), place()});
  }
  graph.capture_end(stream);
}

TEST(ParallelReplay, LeavesWhatAReplayInTurnLeaves) {
  const Always always;
  Stream& stream = side_stream();
  for (unsigned program = 0; program < 20; ++program) {
    static Memory in_turn, parallel;
    for (Memory* memory : {&in_turn, &parallel}) {
      fill(*memory);
      Graph graph;
      capture_program(graph, stream, *memory, check::seed() + program, 40);
      if (memory == &in_turn) always.off();
      for (int i = 0; i < 50; ++i) EXPECT_TRUE(check::replay(graph, stream));
      wait(stream);
      set_parallel_mode(ParallelMode::kAlways);
    }
    EXPECT_TRUE(!memcmp(in_turn, parallel, sizeof in_turn));
  }
}

TEST(ParallelReplay, TwoGraphsOnTwoStreamsDoNotMeet) {
  const Always always;
  Stream *const a = &side_stream(), *const b = &side_stream();
  static Memory first, second, expected;
  for (Memory* memory : {&first, &second, &expected}) fill(*memory);
  Graph graphs[2], in_turn;
  capture_program(graphs[0], *a, first, 1, 30);
  capture_program(graphs[1], *b, second, 1, 30);
  capture_program(in_turn, *a, expected, 1, 30);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(check::replay(graphs[0], *a));
    EXPECT_TRUE(check::replay(graphs[1], *b));
  }
  wait(*a);
  wait(*b);
  always.off();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(check::replay(in_turn, *a));
  wait(*a);
  EXPECT_TRUE(!memcmp(first, expected, sizeof first));
  EXPECT_TRUE(!memcmp(second, expected, sizeof second));
}

// Two nodes fail that may run at the same time: the first one of the capture is
// named, as where nodes run in turn.
TEST(ParallelReplay, NamesTheFirstNodeThatFailed) {
  const Always always;
  Stream& stream = side_stream();
  static Memory memory;
  fill(memory);
  Graph graph;
  graph.capture_begin(stream, 0, CaptureMode::kGlobal);
  graph.threads = 3;
  submit(stream, kMix, {word(memory[1]), word(memory[1]), word(memory[2])});
  submit(stream, kFailOnZero,
         {word(memory[1]), word(memory[1]), word(memory[3])});
  submit(stream, kMix, {word(memory[1]), word(memory[1]), word(memory[4])});
  graph.capture_end(stream);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(check::replay(graph, stream));
  wait(stream);
  memory[1][0] = 0;
  check::replay(graph, stream);
  wait(stream);
  const auto error = stream.error();
  EXPECT_TRUE(error && error->code == NPU_VALUE_ERROR);
  EXPECT_TRUE(error && check::contains(error->text, "node 1, fail on zero"));
  stream.clear_error();
  memory[1][0] = 1;
  EXPECT_TRUE(check::replay(graph, stream));
  wait(stream);
  EXPECT_TRUE(!stream.failed());
}

TEST(ParallelReplay, AChainIsNone) {
  Stream& stream = side_stream();
  static Memory memory;
  Graph graph;
  graph.capture_begin(stream, 0, CaptureMode::kGlobal);
  graph.threads = 2;
  for (int i = 0; i < 3; ++i)
    submit(stream, kMix, {word(memory[0]), word(memory[1]), word(memory[0])});
  graph.capture_end(stream);
  EXPECT_TRUE(!graph.body()->parallel);
}

// Its replays have one thread, as its kernels had.
TEST(ParallelReplay, AGraphOfOneThreadIsNone) {
  Stream& stream = side_stream();
  static Memory memory;
  Graph graph;
  graph.capture_begin(stream, 0, CaptureMode::kGlobal);
  for (int i = 0; i < 3; ++i)
    submit(stream, kMix, {word(memory[0]), word(memory[1]), word(memory[i])});
  graph.capture_end(stream);
  EXPECT_TRUE(!graph.body()->parallel);
}

}  // namespace
}  // namespace npu
