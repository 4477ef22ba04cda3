#include "csrc/links/note_ring.h"

#include <memory>
#include <thread>

#include "tests/cpp/check.h"

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

}  // namespace
}  // namespace npu
