#include "csrc/stats/segment.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "csrc/base/clock.h"
#include "tests/cpp/check.h"

namespace npu {
namespace {

TEST(Segment, IsAFileThatOnlyItsOwnerReads) {
  struct stat info {};
  EXPECT_EQ(stat(segment_path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600);
  EXPECT_EQ(info.st_uid, getuid());
  // A record of collectives lies behind it once there is a group.
  EXPECT_TRUE(size_t(info.st_size) >= sizeof(Segment));
  EXPECT_EQ(segment_path(), "/dev/shm/npu_dispatch-" +
                                std::to_string(getuid()) + "/" +
                                std::to_string(getpid()));
}

TEST(Segment, DescribesItself) {
  SegmentHeader header;
  std::ifstream file(segment_path(), std::ios::binary);
  file.read(reinterpret_cast<char*>(&header), sizeof header);

  EXPECT_EQ(memcmp(header.magic, kLayoutMagic, sizeof kLayoutMagic), 0);
  EXPECT_EQ(header.version, kLayoutVersion);
  EXPECT_EQ(header.pid, getpid());
  EXPECT_EQ(header.header_bytes, offsetof(Segment, devices));
  EXPECT_EQ(header.device_block_bytes, sizeof(DeviceBlock));
  EXPECT_EQ(header.stream_block_bytes, sizeof(StreamBlock));
  EXPECT_TRUE(header.process_start > 0);
  EXPECT_TRUE(header.monotonic_ns <= now_ns());
  EXPECT_EQ(
      header.header_bytes + header.device_blocks * header.device_block_bytes,
      offsetof(Segment, streams));
}

TEST(Segment, ShowsACounterToWhoeverReadsTheFile) {
  StreamBlock* block = claim_stream_block();
  bump(block->retired, 42);

  const auto offset = reinterpret_cast<char*>(&block->retired) -
                      reinterpret_cast<char*>(&segment());
  uint64_t value = 0;
  std::ifstream file(segment_path(), std::ios::binary);
  file.seekg(offset);
  file.read(reinterpret_cast<char*>(&value), sizeof value);

  EXPECT_EQ(value, 42);
}

TEST(Segment, HandsOutEachBlockOnceAndThenNone) {
  const StreamBlock* last = nullptr;
  int blocks = 0;
  while (const StreamBlock* block = claim_stream_block()) {
    EXPECT_TRUE(block != last);
    last = block;
    ++blocks;
  }
  EXPECT_TRUE(blocks <= kMaxStreamBlocks);
  EXPECT_TRUE(claim_stream_block() == nullptr);
}

TEST(Segment, LosesItsFileButNotItsNumbersWhenRemoved) {
  const std::string path = segment_path();
  remove_segment();

  EXPECT_TRUE(access(path.c_str(), F_OK) != 0);
  EXPECT_EQ(segment_path(), "");
  EXPECT_EQ(segment().header.version, kLayoutVersion);
}

}  // namespace
}  // namespace npu
