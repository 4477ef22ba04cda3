// A /dev/shm without memory must not kill the process that publishes
// statistics.
#include <optional>

#include "tests/cpp/kernels.h"
#include "tests/cpp/system.h"

namespace npu {
namespace {

constexpr size_t kPage = 4096, kMiB = size_t{1} << 20;

// Runs the body, which returns 0 where all is well, with a /dev/shm of its own;
// returns what it wrote. Where the system does not allow that, it is not
// tested: nothing is returned.
std::optional<std::string> with_shm(size_t bytes,
                                    const std::function<int()>& body) {
  constexpr int kNotTested = 42;
  const Ended ended =
      in_child([&] { return small_shm(bytes) ? body() : kNotTested; });
  if (ended.code == kNotTested) return {};
  EXPECT_EQ(ended.code, 0);
  return ended.err;
}

int append_and_wait(Stream& stream, uint64_t n) {
  Numbers got;
  for (uint64_t i = 0; i < n; ++i) append(stream, got, i);
  synchronize_device(0, WaitReason::kDeviceSync);
  return got.size() == n ? 0 : 1;
}

int times(const std::string& text, const char* part) {
  int n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at)
    ++n;
  return n;
}

TEST(FullShm, LeavesTheProcessItsStatisticsAndSaysSo) {
  const auto said = with_shm(16 * kPage, [] {
    fill_shm();
    for (int64_t id = 0; id < 3; ++id)
      if (append_and_wait(*find_stream(0, id << 5), 100)) return 1;
    if (!segment_path().empty()) return 2;
    return current_stream(0).block().retired.load() == 100 ? 0 : 3;
  });
  if (!said) return;
  EXPECT_EQ(times(*said, "cannot see this one's statistics"), 1);
  EXPECT_EQ(times(*said, strerror(ENOSPC)), 1);
}

// The segment itself has found memory, but not all of its streams do.
TEST(FullShm, LeavesOutTheStreamsThatComeLaterAndCountsThem) {
  const auto said = with_shm(8 * kMiB, [] {
    Stream& first = current_stream(0);
    if (append_and_wait(first, 100)) return 1;
    fill_shm();
    for (int64_t i = 0; i < 5; ++i)
      if (append_and_wait(next_stream(0, StreamPool::kNormal), 100)) return 2;
    if (segment_path().empty()) return 3;
    const auto* inside = reinterpret_cast<const char*>(&segment());
    const auto* block = reinterpret_cast<const char*>(&first.block());
    if (block < inside || block >= inside + sizeof(Segment)) return 4;
    const uint64_t left_out = segment().process.unpublished_streams.load();
    // The page that the first stream's block ends in has room for more.
    return left_out >= 1 && left_out <= 5 ? 0 : 5;
  });
  if (!said) return;
  EXPECT_EQ(times(*said, "cannot see all streams' statistics"), 1);
}

// Names, call sites and waits are written without asking for memory first.
TEST(FullShm, HarmsNothingThatIsWrittenLater) {
  with_shm(8 * kMiB, [] {
    segment();
    fill_shm();
    for (uint32_t site = 1; site < uint32_t(kMaxSites); ++site) {
      publish_site(site, "train.py:1 in step");
      count_wait_at(site, 0, 1);
    }
    static char names[kMaxNames][2];
    for (auto& name : names) publish_name(name);
    for (OpenWait& wait : segment().waits) wait.since.store(1);
    for (DeviceBlock& device : segment().devices) device.allocated.store(1);
    return 0;
  });
}

// A forked child takes a file with its first stream.
TEST(FullShm, HarmsNoForkedChild) {
  with_shm(8 * kMiB, [] {
    segment();
    fill_shm();
    return in_child([] {
             if (append_and_wait(current_stream(0), 100)) return 1;
             return segment_path().empty() ? 0 : 2;
           })
        .code;
  });
}

}  // namespace
}  // namespace npu
