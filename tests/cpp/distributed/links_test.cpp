// Notes and memory between the ranks of a host.
#include <sys/prctl.h>

#include "csrc/distributed/core/links.h"
#include "csrc/distributed/core/note_ring.h"
#include "tests/cpp/kernels.h"

namespace {

// What PR_SET_PTRACER was told last. The kernel need not have Yama, which asks
// for it.
constexpr long kNobody = 0;
long allowed = kNobody;

}  // namespace

extern "C" int __real_prctl(int option, ...);
extern "C" int __wrap_prctl(int option, unsigned long a, unsigned long b,
                            unsigned long c, unsigned long d) {
  if (option == PR_SET_PTRACER) allowed = long(a);
  return __real_prctl(option, a, b, c, d);
}

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
    while (!ring->pop([&](uint64_t its_key, const char* its_body, size_t size) {
      key = its_key;
      memcpy(&body, its_body, size);
    }))
      std::this_thread::yield();
    EXPECT_EQ(key, i);
    EXPECT_EQ(body, i);
  }

  sender.join();
}

const auto ignore = [](uint64_t, const char*, size_t) {};

TEST(NoteRing, OneThatWasFullSaysOnceThatRoomIsWanted) {
  const auto ring = std::make_unique<NoteRing>();
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

// Whoever maps the ring can write it.
TEST(NoteRing, ANoteThatIsLargerThanItsPlaceIsAnError) {
  constexpr uint64_t kKey = 0x0123456789abcdef;
  const auto ring = std::make_unique<NoteRing>();
  EXPECT_TRUE(ring->push(kKey, nullptr, 0));
  auto* const bytes = reinterpret_cast<char*>(ring.get());
  auto* const note =
      static_cast<char*>(memmem(bytes, sizeof *ring, &kKey, sizeof kKey));
  const uint32_t size = Note::kBody + 1;
  memcpy(note + offsetof(Note, size), &size, sizeof size);

  EXPECT_THROWS(ring->pop(ignore), std::runtime_error);
}

constexpr uint64_t kLong = 60'000'000'000;

bool link(Links& mine, int peer, const std::string& address) {
  return mine.meet(peer, address) && mine.open(peer);
}

// Two ranks in one process.
struct Pair {
  Links zero{0, 2}, one{1, 2};
  bool linked = link(zero, 1, one.address()) && link(one, 0, zero.address());
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
  Pair pair;
  on_threads(2 * kThreads, [&](int t) {
    Links& mine = t % 2 ? pair.one : pair.zero;
    for (int64_t i = 0; i < 500; ++i) {
      mine.post(1 - t % 2, uint64_t(t / 2), &i, sizeof i);
      EXPECT_EQ(waited_for(mine, 1 - t % 2, uint64_t(t / 2)), i);
    }
  });
}

TEST(Links, MemoryIsReadUntilItIsWithdrawn) {
  Pair pair;
  const std::vector<char> there(3'000'001, 'x');
  std::vector<char> here(there.size());
  const auto read = [&](uint64_t at, size_t bytes) {
    pair.zero.read(1, at, here.data(), bytes);
  };
  const auto at = reinterpret_cast<uint64_t>(there.data());
  read(at, here.size());
  EXPECT_TRUE(here == there);
  EXPECT_EQ(pair.zero.lost(1), nullptr);
  EXPECT_THROWS(read(8, 1), std::runtime_error);  // nothing is there
  pair.one.withdraw();
  EXPECT_THROWS(read(at, here.size()), std::runtime_error);
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

// An address is words: which one is what.
enum Word { kHost, kPid, kFile, kToken, kLocation };

std::string changed(const std::string& address, Word which,
                    const std::string& to) {
  std::istringstream in(address);
  std::string text;
  int n = 0;
  for (std::string word; in >> word; ++n)
    text += (n ? " " : "") + (n == which ? to : word);
  return text;
}

TEST(Links, AnotherFileThanThePeersIsRefused) {
  Links zero(0, 2), one(1, 2);
  const int other = memfd_create("other", MFD_CLOEXEC);
  const std::string address =
      changed(one.address(), kFile, std::to_string(other));

  EXPECT_TRUE(!link(zero, 1, address));  // its first byte would raise SIGBUS
  EXPECT_EQ(ftruncate(other, 1 << 20), 0);
  EXPECT_TRUE(!link(zero, 1, address));
  EXPECT_TRUE(link(zero, 1, one.address()));
  close(other);
}

// A process that does nothing, a child of this one.
pid_t idle_child() {
  const pid_t pid = fork();
  while (pid == 0) ::pause();
  return pid;
}
void end(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

std::string as_of(const Links& peer, pid_t pid) {
  return changed(peer.address(), kPid, std::to_string(pid));
}

TEST(Links, OnlyPeersMayReadItsMemoryAndOnlyWhileTheyAreLinked) {
  const pid_t first = idle_child(), second = idle_child();
  {
    Links zero(0, 3), peer(1, 3);
    EXPECT_EQ(allowed, kNobody);
    EXPECT_TRUE(zero.meet(1, as_of(peer, first)));
    EXPECT_EQ(allowed, first);
    // Of two it is what they descend from: this process.
    EXPECT_TRUE(zero.meet(2, as_of(peer, second)));
    EXPECT_EQ(allowed, getpid());
    zero.close(2);
    EXPECT_TRUE(allowed != kNobody);
    // One that is not linked with after all has no leave.
    EXPECT_TRUE(!zero.open(1));
    EXPECT_EQ(allowed, kNobody);
    EXPECT_TRUE(zero.meet(1, as_of(peer, first)));
  }
  EXPECT_EQ(allowed, kNobody);
  for (const pid_t child : {first, second}) end(child);
}

// As a shell that has started the ranks and ends before they do.
TEST(Links, PeersMayReadItsMemoryAfterTheirCommonAncestorHasEnded) {
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);  // of whom ranks are then children
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t shell = fork();
  if (shell == 0) {
    for (int i = 0; i < 2; ++i) {
      const pid_t rank = idle_child();
      if (write(ends[1], &rank, sizeof rank) < 0) _exit(1);
    }
    for (;;) ::pause();
  }
  pid_t ranks[2];
  for (pid_t& rank : ranks)
    EXPECT_EQ(read(ends[0], &rank, sizeof rank), ssize_t(sizeof rank));
  Links zero(0, 3), peer(1, 3);
  for (int i = 0; i < 2; ++i) zero.meet(i + 1, as_of(peer, ranks[i]));
  EXPECT_EQ(allowed, shell);

  end(shell);
  Links::Wait wait(zero);
  while (allowed == shell) wait.pause(kLong);

  EXPECT_EQ(allowed, getpid());
  for (const pid_t rank : ranks) end(rank);
  for (const int file : ends) close(file);
}

TEST(Links, ThereIsNoneWithAnotherHostOrAnotherProcess) {
  Links zero(0, 2), one(1, 2);
  EXPECT_TRUE(!link(zero, 1, "-"));
  EXPECT_TRUE(!link(zero, 1, "another" + one.address()));
  // As if the number of the process were another one's by now.
  EXPECT_TRUE(!link(zero, 1, changed(one.address(), kToken, "1")));
  EXPECT_TRUE(link(zero, 1, one.address()));
}

TEST(Links, ARankThatLeavesIsLostAndWhatItSentIsNot) {
  Links zero(0, 2);
  const int64_t last = 5;
  {
    Links one(1, 2);
    EXPECT_TRUE(link(zero, 1, one.address()) && link(one, 0, zero.address()));
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
    EXPECT_TRUE(link(zero, 1, text));
    zero.post(1, 6, nullptr, 0);
  });

  const Ended ended = in_child([&] {
    Links one(1, 2);
    const std::string text = one.address();
    if (write(ends[1], text.data(), text.size()) < 0) return 2;
    // Which may be only once it has met this one.
    while (!link(one, 0, zero.address())) usleep(1000);
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
