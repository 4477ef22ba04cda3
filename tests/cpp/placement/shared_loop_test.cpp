#include "csrc/placement/shared_loop.h"
#include "csrc/placement/helper.h"
#include "tests/cpp/kernels.h"

namespace npu {
namespace {

// Calls piece(i) for each.
template <typename Piece>
void shared(int width, int pieces, const Piece& piece) {
  run_shared(
      width, pieces,
      [](void* context, int i) { (*static_cast<const Piece*>(context))(i); },
      const_cast<Piece*>(&piece));
}

// Plain numbers: ThreadSanitizer sees whether the pieces are ordered with what
// is before and after the loop.
void run_each_piece_once(int rounds) {
  for (int round = 0; round < rounds; ++round) {
    const int n = 1 + round % 9;
    std::vector<int> runs(size_t(n), round);
    shared(1 + round % 4, n, [&](int i) { ++runs[size_t(i)]; });
    EXPECT_EQ(runs, std::vector<int>(size_t(n), round + 1));
  }
}

// Three launchers want the same helpers.
TEST(SharedLoop, RunsEachPieceOnceAndSeesWhatItWrote) {
  on_threads(3, [](int) { run_each_piece_once(3000); });
}

TEST(SharedLoop, AHelperTakesPart) {
  // The first piece ends only once another thread has begun the second.
  std::atomic<bool> begun{false};
  std::atomic<int> threads{0};
  const std::thread::id launcher = std::this_thread::get_id();
  shared(2, 2, [&](int) {
    threads += std::this_thread::get_id() != launcher;
    if (begun.exchange(true)) return;
    while (!threads) pause();
  });
  EXPECT_TRUE(threads > 0);
}

// A thread that waits for a device until `stop`, and helps.
std::thread waits(std::atomic<bool>& there, const std::atomic<bool>& stop) {
  return std::thread([&] {
    WaitingHelper helper;
    there = true;
    while (!stop)
      if (!helper.help()) pause();
  });
}

TEST(SharedLoop, AThreadThatWaitsTakesPartBeforeAnyHelper) {
  std::atomic<bool> there{false}, stop{false};
  std::thread waiting = waits(there, stop);
  while (!there) pause();
  for (int round = 0; round < 100; ++round) {
    // As above: each piece needs a thread of its own.
    std::atomic<int> begun{0};
    std::atomic<bool> waiting_took{false};
    shared(2, 2, [&](int) {
      if (std::this_thread::get_id() == waiting.get_id()) waiting_took = true;
      ++begun;
      while (begun < 2) pause();
    });
    EXPECT_TRUE(waiting_took);
  }
  stop = true;
  waiting.join();
}

TEST(SharedLoop, ThreadsThatWaitComeAndGo) {
  // More threads than there are places.
  std::atomic<bool> stop{false};
  std::jthread launchers([&] {
    on_threads(2, [](int) { run_each_piece_once(1000); });
    stop = true;
  });
  on_threads(10, [&](int thread) {
    while (!stop) {
      WaitingHelper helper;
      for (int k = 0; k < thread * 3; ++k)
        if (!helper.help()) std::this_thread::yield();
    }
  });
}

TEST(Helper, WhoGoesLeavesTheLoopAndThePlace) {
  int runs = 0;
  Loop loop(1, [](void* runs, int) { ++*static_cast<int*>(runs); }, &runs);
  Helper place;
  EXPECT_TRUE(!place.offer(loop, true));  // nobody is here
  EXPECT_TRUE(place.come());
  EXPECT_TRUE(!place.come());  // somebody is
  EXPECT_TRUE(place.offer(loop, false));
  EXPECT_TRUE(!place.offer(loop, false));  // it has a loop
  place.go();
  EXPECT_TRUE(!place.come());  // the launcher is not done with the place
  place.take_back();
  EXPECT_TRUE(runs == 0);

  EXPECT_TRUE(place.come());
  EXPECT_TRUE(place.offer(loop, false));
  EXPECT_TRUE(place.help());
  EXPECT_TRUE(runs == 1);
  place.go();  // before the launcher has seen that it is done
  place.take_back();
  EXPECT_TRUE(place.come());
  EXPECT_TRUE(!place.help());  // nothing is offered
  place.go();
  EXPECT_TRUE(!place.offer(loop, true));
}

TEST(SharedLoop, DoesNotWaitForAHelperThatIsBusy) {
  // The one helper that both want is in a piece which ends after the other
  // loop.
  std::atomic<bool> helping{false}, ended{false};
  std::thread holds([&] {
    const std::thread::id launcher = std::this_thread::get_id();
    shared(2, 2, [&](int) {
      if (std::this_thread::get_id() == launcher) {
        while (!helping) pause();
        return;
      }
      helping = true;
      while (!ended) pause();
    });
  });
  while (!helping) pause();
  int runs = 0;
  shared(2, 5, [&](int) { ++runs; });
  EXPECT_TRUE(runs == 5);
  ended = true;
  holds.join();
}

TEST(SharedLoop, OfOnePieceOrOneThreadStaysOnItsThread) {
  const std::thread::id launcher = std::this_thread::get_id();
  for (const auto& [width, pieces] : {std::pair{1, 6}, {4, 1}, {0, 2}})
    shared(width, pieces,
           [&](int) { EXPECT_TRUE(std::this_thread::get_id() == launcher); });
  shared(2, 0, [&](int) { EXPECT_TRUE(false); });
}

TEST(SharedLoop, ThrowsWhatAPieceHasThrownOnceAllHaveRun) {
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> runs{0};
    EXPECT_EQ(thrown([&] {
                shared(3, 8, [&](int i) {
                  ++runs;
                  if (i == round % 8) throw std::runtime_error("piece");
                });
              }),
              "piece");
    EXPECT_EQ(runs.load(), 8);
  }
}

}  // namespace
}  // namespace npu
