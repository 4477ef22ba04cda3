#include "csrc/stats/owner.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <fstream>

#include "csrc/stats/layout.h"
#include "tests/cpp/check.h"

namespace npu {
namespace {

std::string make_directory() {
  char name[] = "/tmp/npu_owner_test_XXXXXX";
  return mkdtemp(name);
}

void write(const std::string& path, pid_t pid, uint64_t start, uint64_t space) {
  SegmentHeader header{};
  memcpy(header.magic, kLayoutMagic, sizeof kLayoutMagic);
  header.version = kLayoutVersion;
  header.pid = uint32_t(pid);
  header.process_start = start;
  header.pid_namespace = space;
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(&header), sizeof header);
}

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

TEST(Owner, IsNamedByNumberAndStart) {
  EXPECT_TRUE(process_start(getpid()) > 0);
  EXPECT_EQ(process_start(getpid()), process_start(getpid()));
  EXPECT_EQ(process_start(1 << 30), 0);
}

TEST(Owner, LeavesItsSegmentAsideWhenDeadAndKeepsItOtherwise) {
  const std::string directory = make_directory();
  const std::string living = directory + "/1", reused = directory + "/2",
                    elsewhere = directory + "/3", other = directory + "/4";
  const uint64_t start = process_start(getpid()), here = pid_namespace();
  write(living, getpid(), start, here);
  write(reused, getpid(), start + 1, here);  // somebody else had the number
  write(elsewhere, 1 << 30, 7, here + 1);
  std::ofstream(other) << "no segment";

  remove_abandoned(directory, read_segment_owner, kDeadSegments);

  EXPECT_TRUE(exists(living));
  EXPECT_TRUE(!exists(reused));
  EXPECT_TRUE(exists(reused + kDeadSuffix));
  unlink((reused + kDeadSuffix).c_str());
  EXPECT_TRUE(exists(elsewhere));
  EXPECT_TRUE(exists(other));
  for (const auto& path : {living, elsewhere, other}) unlink(path.c_str());
  rmdir(directory.c_str());
}

TEST(Owner, IsKeptForItsTimeWhenDeadAndTheNewestOnly) {
  const std::string directory = make_directory();
  const auto dead = [&](int n) {
    return directory + "/" + std::to_string(n) + kDeadSuffix;
  };
  const int64_t now = int64_t(time(nullptr));
  for (int n = 0; n < 6; ++n) {
    write(dead(n), 1 << 30, 7, pid_namespace());
    const timespec found{time_t(n < 4 ? now - 9 - n : now - kDeadKeptS - n), 0};
    const timespec times[2] = {found, found};
    utimensat(AT_FDCWD, dead(n).c_str(), times, 0);
  }
  write(directory + "/9", 1 << 30, 7, pid_namespace());

  remove_abandoned(directory, read_segment_owner, 4);

  EXPECT_TRUE(exists(dead(9)));  // died last
  for (int n = 0; n < 6; ++n) {
    EXPECT_EQ(exists(dead(n)), n < 3);
    unlink(dead(n).c_str());
  }
  remove_abandoned(directory, read_segment_owner, 0);
  EXPECT_TRUE(!exists(dead(9)));
  EXPECT_EQ(rmdir(directory.c_str()), 0);
}

TEST(Owner, TellsMemoryFromWhatMayBeADisk) {
  EXPECT_TRUE(in_memory("/dev/shm"));
  EXPECT_TRUE(!in_memory("/proc"));
  EXPECT_TRUE(!in_memory("/dev/shm/is_not_there"));
}

}  // namespace
}  // namespace npu
