// The file in which others see the statistics of a process, and who owns it.
#include <inttypes.h>
#include <time.h>

#include "csrc/stats/layout.h"
#include "csrc/stats/owner.h"
#include "csrc/stats/shared_file.h"
#include "tests/cpp/kernels.h"
#include "tests/cpp/system.h"

namespace npu {
namespace {

void write_header(const std::string& path, pid_t pid, uint64_t start,
                  uint64_t space) {
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

// Holds the lock of a file, as its owner does.
class Held {
 public:
  explicit Held(const std::string& path) : file_(open(path.c_str(), O_RDWR)) {
    struct flock what {};
    what.l_type = F_WRLCK;
    what.l_whence = SEEK_SET;
    EXPECT_EQ(fcntl(file_, F_OFD_SETLK, &what), 0);
  }
  ~Held() { close(file_); }

 private:
  const int file_;
};

bool has_ended(const std::string& path) {
  const OpenFile file(open(path.c_str(), O_RDONLY));
  Owner owner;
  EXPECT_TRUE(read_segment_owner(file, owner));
  return npu::has_ended(file, owner);
}

TEST(Owner, LeavesItsSegmentAsideWhenDeadAndKeepsItOtherwise) {
  const TemporaryFolder folder;
  const std::string living = folder.path + "/1", reused = folder.path + "/2",
                    elsewhere = folder.path + "/3", other = folder.path + "/4",
                    unknown = folder.path + "/5", ended = folder.path + "/6";
  const uint64_t start = process_start(getpid()), here = pid_namespace();
  write_header(living, getpid(), start,
               here);  // without a lock, which it may lose
  write_header(reused, getpid(), start + 1,
               here);  // somebody else had the number
  write_header(elsewhere, 1 << 30, 7, here + 1);
  write_header(unknown, 1 << 30, 7, 0);
  write_header(ended, getpid(), start, here + 1);
  std::ofstream(other) << "no segment";
  // Nobody waits for its writer.
  EXPECT_EQ(mkfifo((folder.path + "/7").c_str(), 0600), 0);
  {
    const Held of_elsewhere(elsewhere), of_unknown(unknown), of_reused(reused);
    EXPECT_TRUE(!has_ended(elsewhere));
    EXPECT_TRUE(!has_ended(unknown));
    EXPECT_TRUE(!has_ended(living));

    remove_abandoned(folder.path, read_segment_owner, kDeadSegments);

    for (const auto& path : {living, elsewhere, unknown, other})
      EXPECT_TRUE(exists(path));
    for (const auto& path : {reused, ended}) {
      EXPECT_TRUE(!exists(path));
      EXPECT_TRUE(exists(path + kDeadSuffix));
    }
  }
  EXPECT_TRUE(has_ended(elsewhere));
  remove_abandoned(folder.path, read_segment_owner, kDeadSegments);
  for (const auto& path : {elsewhere, unknown, reused, ended})
    EXPECT_TRUE(exists(path + kDeadSuffix));
}

TEST(Owner, TakesNoNameFromAProcessThatMayLive) {
  const TemporaryFolder folder;
  const uint64_t here = pid_namespace();
  const std::string first = folder.path + "/" + std::to_string(getpid()),
                    second = first + "-" + std::to_string(here);
  const auto take = [&] {
    SharedFile own;
    EXPECT_TRUE(own.make(folder.path, read_segment_owner, 1));
    const std::string path = own.path();
    own.remove();
    return path;
  };
  EXPECT_EQ(take(), first);
  std::ofstream(first) << "";  // somebody is about to write the header
  EXPECT_EQ(take(), second);
  for (const uint64_t space : {here + 1, uint64_t{0}}) {
    write_header(first, getpid(), 7, space);
    {
      const Held held(first);
      EXPECT_EQ(take(), second);
      EXPECT_TRUE(exists(first));
    }
    EXPECT_EQ(take(), first);
  }
  write_header(first, getpid(), process_start(getpid()),
               here);  // before an exec()
  write_header(second, getpid(), 7, here);
  EXPECT_EQ(take(), first);
  EXPECT_TRUE(!exists(second));
  EXPECT_EQ(mkfifo(first.c_str(), 0600), 0);
  EXPECT_EQ(take(), first);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path));
}

TEST(Owner, RemovesNoFileThatHasGotItsName) {
  const TemporaryFolder folder;
  SharedFile own;
  EXPECT_TRUE(own.make(folder.path, read_segment_owner, 1));
  const std::string path = own.path();
  EXPECT_EQ(rename(path.c_str(), (path + kDeadSuffix).c_str()), 0);
  std::ofstream(path) << "another";
  EXPECT_TRUE(!own.allocate(0, 1));
  own.remove();
  EXPECT_TRUE(exists(path));
}

TEST(Owner, ItsLockIsNotHeldByItsChildren) {
  const TemporaryFolder folder;
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  // The owner ends while its child lives, which says so and waits.
  const auto ended = in_child([&] {
    SharedFile own;
    if (!own.make(folder.path, read_segment_owner, 1)) return 4;
    write_header(own.path(), getpid(), 7, pid_namespace() + 1);
    if (has_ended(own.path())) return 1;
    int ready[2];
    if (pipe(ready)) return 2;
    if (fork() == 0) {
      close(2);  // in_child() reads it to its end
      close(ends[1]);
      own.release_after_fork();
      char byte = 1;
      if (write(ready[1], &byte, 1) != 1) _exit(1);
      _exit(read(ends[0], &byte, 1) < 0);  // until the test has looked
    }
    char byte;
    return read(ready[0], &byte, 1) == 1 ? 0 : 3;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_TRUE(!std::filesystem::is_empty(folder.path));
  for (const auto& file : std::filesystem::directory_iterator(folder.path))
    EXPECT_TRUE(has_ended(file.path()));
  close(ends[1]);
  close(ends[0]);
}

TEST(Owner, IsKeptForItsTimeWhenDeadAndTheNewestOnly) {
  const TemporaryFolder folder;
  const auto dead = [&](int n) {
    return folder.path + "/" + std::to_string(n) + kDeadSuffix;
  };
  const int64_t now = int64_t(time(nullptr));
  for (int n = 0; n < 6; ++n) {
    write_header(dead(n), 1 << 30, 7, pid_namespace());
    const timespec found{time_t(n < 4 ? now - 9 - n : now - kDeadKeptS - n), 0};
    const timespec times[2] = {found, found};
    utimensat(AT_FDCWD, dead(n).c_str(), times, 0);
  }
  write_header(folder.path + "/9", 1 << 30, 7, pid_namespace());

  remove_abandoned(folder.path, read_segment_owner, 4);

  EXPECT_TRUE(exists(dead(9)));  // died last
  for (int n = 0; n < 6; ++n) EXPECT_EQ(exists(dead(n)), n < 3);
  remove_abandoned(folder.path, read_segment_owner, 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path));
}

// As in a program that closes every descriptor it finds.
TEST(SharedFile, GrowsAndIsMappedWithoutItsFirstDescriptor) {
  const TemporaryFolder folder;
  SharedFile own;
  const int next = dup(0);
  close(next);
  EXPECT_TRUE(own.make(folder.path, read_segment_owner, 1));
  close(next);
  EXPECT_EQ(own.map(0, 9000), nullptr);  // a page of it would raise SIGBUS
  EXPECT_TRUE(own.allocate(8192, 808));
  auto* const memory = static_cast<char*>(own.map(0, 9000));
  EXPECT_TRUE(memory != nullptr);
  memory[8999] = 1;
  own.remove();
  EXPECT_TRUE(!own.allocate(0, 1));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path));
}

TEST(Owner, TellsMemoryFromWhatMayBeADisk) {
  EXPECT_TRUE(in_memory("/dev/shm"));
  EXPECT_TRUE(!in_memory("/proc"));
  EXPECT_TRUE(!in_memory("/dev/shm/is_not_there"));
}

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

// On some machines pages have 64 KiB, and a mapping begins at one.
TEST(Segment, IsMappedInPartsThatCanBeginAPageOfAnySize) {
  segment_extension(100, [](void*) {});
  std::ifstream maps("/proc/self/maps");
  int parts = 0;
  for (std::string line; std::getline(maps, line);) {
    if (!line.ends_with(segment_path())) continue;
    uint64_t at = 1;
    EXPECT_EQ(sscanf(line.c_str(), "%*s %*s %" SCNx64, &at), 1);
    EXPECT_EQ(at % 0x10000, 0);
    ++parts;
  }
  EXPECT_EQ(parts, 2);
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
