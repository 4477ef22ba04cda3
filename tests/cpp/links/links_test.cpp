// Notes and memory between the ranks of a host.
#include <signal.h>

#include <memory>
#include <stdexcept>
#include <thread>

#include "csrc/links/links.h"
#include "csrc/links/note_ring.h"
#include "tests/cpp/check.h"
#include "tests/cpp/child.h"

namespace npu {
namespace {

TEST(NoteRing, NotesComeInTheOrderInWhichTheyWereSent) {
  constexpr uint64_t kNotes = 50'000;
  const auto ring = std::make_unique<NoteRing>();
  std::thread sender([&] {
    for (uint64_t i = 0; i < kNotes; ++i)
      while (!ring->push(i, &i, sizeof i)) std::this_thread::yield();
  });

  for (uint64_t i = 0; i < kNotes; ++i) {
    uint64_t key = 0, body = 0;
    while (!ring->pop([&](const Note& note) {
      key = note.key;
      memcpy(&body, note.body, note.size);
    }))
      std::this_thread::yield();
    EXPECT_EQ(key, i);
    EXPECT_EQ(body, i);
  }

  sender.join();
}

TEST(NoteRing, OneThatWasFullSaysOnceThatRoomIsWanted) {
  const auto ring = std::make_unique<NoteRing>();
  const auto ignore = [](const Note&) {};
  uint64_t pushed = 0;
  while (ring->push(pushed, nullptr, 0)) ++pushed;

  EXPECT_TRUE(pushed > 1);
  EXPECT_TRUE(ring->pop(ignore));
  EXPECT_TRUE(ring->room_is_wanted());
  EXPECT_TRUE(!ring->room_is_wanted());
  EXPECT_TRUE(ring->push(pushed, nullptr, 0));
  while (ring->pop(ignore)) {
  }
  EXPECT_TRUE(!ring->room_is_wanted());
}

constexpr uint64_t kLong = 60'000'000'000;

// Two ranks in one process.
struct Pair {
  Links zero{0, 2}, one{1, 2};
  bool linked = zero.open(1, one.address()) && one.open(0, zero.address());
};

int64_t waited_for(Links& links, int peer, uint64_t key) {
  int64_t value = -1;
  Links::Wait wait(links);
  for (;;) {
    links.progress();
    if (links.take(peer, key, &value, sizeof value)) return value;
    wait.pause(kLong);
  }
}

TEST(Links, ANoteIsTakenByItsKeyWhateverCameBefore) {
  Pair pair;
  EXPECT_TRUE(pair.linked);
  const int64_t early = 1, late = 2;
  pair.zero.post(1, 7, &early, sizeof early);
  pair.zero.post(1, 8, &late, sizeof late);

  EXPECT_EQ(waited_for(pair.one, 0, 8), late);
  EXPECT_EQ(waited_for(pair.one, 0, 7), early);
  EXPECT_TRUE(!pair.one.take(0, 7, nullptr, 0));
}

TEST(Links, NotesOfOneKeyKeepTheirOrderWhereThereIsNoRoomAtFirst) {
  constexpr int64_t kNotes = 1000;
  Pair pair;
  uint64_t number = 0;
  for (int64_t i = 0; i < kNotes; ++i)
    number = pair.zero.post(1, 7, &i, sizeof i);
  EXPECT_TRUE(!pair.zero.has_left(1, number));

  std::thread receiver([&] {
    for (int64_t i = 0; i < kNotes; ++i)
      EXPECT_EQ(waited_for(pair.one, 0, 7), i);
  });
  Links::Wait wait(pair.zero);
  while (!pair.zero.has_left(1, number)) {
    wait.pause(kLong);
    pair.zero.progress();
  }
  receiver.join();
}

// Four threads of each side, as calls of four streams.
TEST(Links, ThreadsOfOneRankTakeEachOthersNotesIn) {
  constexpr int kThreads = 4;
  constexpr int64_t kRounds = 500;
  Pair pair;
  const auto talk = [&](Links& mine, int peer, uint64_t key) {
    for (int64_t i = 0; i < kRounds; ++i) {
      mine.post(peer, key, &i, sizeof i);
      EXPECT_EQ(waited_for(mine, peer, key), i);
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] { talk(pair.zero, 1, t); });
    threads.emplace_back([&, t] { talk(pair.one, 0, t); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Links, MemoryIsReadUntilItIsWithdrawn) {
  Pair pair;
  const std::vector<char> there(3'000'001, 'x');
  std::vector<char> here(there.size());
  const auto read = [&] {
    pair.zero.read(1, reinterpret_cast<uint64_t>(there.data()), here.data(),
                   here.size());
  };

  read();
  EXPECT_TRUE(here == there);
  EXPECT_EQ(pair.zero.lost(1), nullptr);
  pair.one.withdraw();
  EXPECT_THROWS(read(), std::runtime_error);
}

TEST(Links, MemoryThatIsNotThereIsAnError) {
  Pair pair;
  char byte;
  EXPECT_THROWS(pair.zero.read(1, 8, &byte, 1), std::runtime_error);
}

TEST(Links, AWaitEndsWhenItIsWoken) {
  Pair pair;
  std::atomic<bool> given_up{false};
  std::thread waiter([&] {
    Links::Wait wait(pair.zero);
    while (!given_up.load(std::memory_order_acquire)) wait.pause(kLong);
  });
  given_up.store(true, std::memory_order_release);
  pair.zero.wake();
  waiter.join();
}

TEST(Links, ThereIsNoneWithAnotherHostOrAnotherProcess) {
  Links zero(0, 2), one(1, 2);
  EXPECT_TRUE(!zero.open(1, "-"));
  EXPECT_TRUE(!zero.open(1, "another" + one.address()));
  // As if the number of the process were another one's by now.
  const std::string address = one.address();
  const size_t last = address.rfind(' ');
  const size_t token = address.rfind(' ', last - 1);
  EXPECT_TRUE(
      !zero.open(1, address.substr(0, token) + " 1" + address.substr(last)));
  EXPECT_TRUE(zero.open(1, address));
}

TEST(Links, ARankThatLeavesIsLostAndWhatItSentIsNot) {
  Links zero(0, 2);
  const int64_t last = 5;
  {
    Links one(1, 2);
    EXPECT_TRUE(zero.open(1, one.address()) && one.open(0, zero.address()));
    one.post(0, 7, &last, sizeof last);
    EXPECT_EQ(zero.lost(1), nullptr);
  }
  EXPECT_EQ(std::string(zero.lost(1)), "it has left the group");
  EXPECT_EQ(waited_for(zero, 1, 7), last);
}

// The child is a rank that is killed. It says where it is through a pipe.
TEST(Links, AKilledRankIsLostAndWhatItSentIsNot) {
  Links zero(0, 2);
  const int64_t last = 5;
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  std::thread opens([&, read_end = ends[0]] {
    char text[500] = {};
    EXPECT_TRUE(read(read_end, text, sizeof text - 1) > 0);
    EXPECT_TRUE(zero.open(1, text));
    zero.post(1, 6, nullptr, 0);
  });

  const Ended ended = in_child([&] {
    Links one(1, 2);
    if (!one.open(0, zero.address())) return 1;
    const std::string text = one.address();
    if (write(ends[1], text.data(), text.size()) < 0) return 2;
    waited_for(one, 0, 6);
    one.post(0, 7, &last, sizeof last);
    raise(SIGKILL);
    return 3;
  });
  opens.join();

  EXPECT_EQ(ended.code, -SIGKILL);
  EXPECT_EQ(std::string(zero.lost(1)), "its process has ended");
  EXPECT_EQ(waited_for(zero, 1, 7), last);
  char byte;
  EXPECT_THROWS(zero.read(1, reinterpret_cast<uint64_t>(&last), &byte, 1),
                std::runtime_error);
  close(ends[0]);
  close(ends[1]);
}

TEST(Links, AForkedChildThatEndsIsNotTheRank) {
  Pair pair;
  const Ended ended = in_child([&] {
    pair.zero.~Links();  // not again: exit() leaves the stack as it is
    return 0;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(pair.one.lost(0), nullptr);
}

}  // namespace
}  // namespace npu
