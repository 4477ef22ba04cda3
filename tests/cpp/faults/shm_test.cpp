// A /dev/shm without memory must not kill the process that publishes
// statistics.
#include <string.h>
#include <sys/stat.h>

#include "csrc/engine/engine.h"
#include "csrc/engine/stream_pools.h"
#include "csrc/stats/segment.h"
#include "tests/cpp/check.h"
#include "tests/cpp/child.h"
#include "tests/cpp/kernels.h"
#include "tests/cpp/small_shm.h"

namespace npu {
namespace {

constexpr int kNotTested = 42;
constexpr size_t kPage = 4096;

// Where the system does not allow a /dev/shm of one's own, it is not tested.
void expect_well(const Ended& ended) {
  if (ended.code != kNotTested) EXPECT_EQ(ended.code, 0);
}

int append_and_wait(Stream& stream, uint64_t n) {
  std::vector<uint64_t> got;
  for (uint64_t i = 0; i < n; ++i) submit(stream, kAppend, {word(&got), i});
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
  const auto ended = in_child([] {
    if (!small_shm(16 * kPage)) return kNotTested;
    fill_shm();
    for (int64_t id = 0; id < 3; ++id)
      if (append_and_wait(*find_stream(0, id << 5), 100)) return 1;
    if (!segment_path().empty()) return 2;
    return current_stream(0).block().retired.load() == 100 ? 0 : 3;
  });
  expect_well(ended);
  if (ended.code == kNotTested) return;
  EXPECT_EQ(times(ended.err, "cannot see this one's statistics"), 1);
  EXPECT_EQ(times(ended.err, strerror(ENOSPC)), 1);
}

// The segment itself has found memory, but not all of its streams do.
TEST(FullShm, LeavesOutTheStreamsThatComeLaterAndCountsThem) {
  const auto ended = in_child([] {
    if (!small_shm(size_t{8} << 20)) return kNotTested;
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
  expect_well(ended);
  if (ended.code == kNotTested) return;
  EXPECT_EQ(times(ended.err, "cannot see all streams' statistics"), 1);
}

// Names, call sites and waits are written without asking for memory first.
TEST(FullShm, HarmsNothingThatIsWrittenLater) {
  const auto ended = in_child([] {
    if (!small_shm(size_t{8} << 20)) return kNotTested;
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
  expect_well(ended);
}

// Two containers share /dev/shm, and both have a process of this number.
TEST(SharedShm, LeavesTheSegmentOfAnotherContainerAlone) {
  const auto ended = in_child([] {
    if (!small_shm(size_t{16} << 20)) return kNotTested;
    const std::string folder =
        "/dev/shm/npu_dispatch-" + std::to_string(getuid());
    mkdir(folder.c_str(), 0700);
    const std::string theirs = folder + "/" + std::to_string(getpid());
    SegmentHeader header{};
    memcpy(header.magic, kLayoutMagic, sizeof kLayoutMagic);
    header.version = kLayoutVersion;
    header.pid = uint32_t(getpid());
    header.process_start = 7;
    header.pid_namespace = pid_namespace() + 1;
    const int file = open(theirs.c_str(), O_RDWR | O_CREAT, 0600);
    if (write(file, &header, sizeof header) != sizeof header) return 1;
    struct flock what {};  // as that process holds it
    what.l_type = F_WRLCK;
    what.l_whence = SEEK_SET;
    if (fcntl(file, F_OFD_SETLK, &what)) return 4;
    if (segment_path() != theirs + "-" + std::to_string(pid_namespace()))
      return 2;
    remove_segment();
    return access(theirs.c_str(), F_OK) == 0 ? 0 : 3;
  });
  expect_well(ended);
}

// A FIFO in the folder of the segments must not make anybody wait for a writer.
TEST(SharedShm, IsNotHeldUpByAFifo) {
  const auto ended = in_child([] {
    if (!small_shm(size_t{16} << 20)) return kNotTested;
    const std::string folder =
        "/dev/shm/npu_dispatch-" + std::to_string(getuid());
    mkdir(folder.c_str(), 0700);
    for (const char* name : {"/1", "/2"})
      if (mkfifo((folder + name).c_str(), 0600)) return 1;
    if (mkfifo((folder + "/" + std::to_string(getpid())).c_str(), 0600))
      return 2;
    return segment_path().empty() ? 3 : 0;
  });
  expect_well(ended);
}

// A forked child takes a file with its first stream.
TEST(FullShm, HarmsNoForkedChild) {
  const auto ended = in_child([] {
    if (!small_shm(size_t{8} << 20)) return kNotTested;
    segment();
    fill_shm();
    return in_child([] {
             if (append_and_wait(current_stream(0), 100)) return 1;
             return segment_path().empty() ? 0 : 2;
           })
        .code;
  });
  expect_well(ended);
}

}  // namespace
}  // namespace npu
