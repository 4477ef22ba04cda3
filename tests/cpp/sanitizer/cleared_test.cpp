// What becomes of a task while whoever is told of a finding clears the
// sanitizer.
#include <vector>

#include "tests/cpp/check.h"
#include "tests/cpp/sanitizer/world.h"

namespace npu {
namespace {

using check::kWrite;
using check::kWriteView;
using check::submit;
using check::word;
using check::World;

World* told_ = nullptr;

TEST(Sanitizer, RefusesNoTaskWhereItIsClearedByWhoeverIsTold) {
  static std::vector<uint64_t> ran;
  ran.clear();
  static const npu_kernel kWriteAndNote{
      [](const npu_kernel*, const uint64_t* words, npu_failure*) {
        ran.push_back(words[1]);
        return int(NPU_OK);
      },
      "test::note", &kWriteView, 1};
  World w([](const Finding*, size_t) {
    told_->sanitizer.clear();
    return false;
  });
  told_ = &w;
  submit(w.one, kWrite, {word(w.memory)});
  submit(w.two, kWriteAndNote, {word(w.memory), 7});
  w.two.stop();
  EXPECT_TRUE(ran == std::vector<uint64_t>({7}));
}

}  // namespace
}  // namespace npu
