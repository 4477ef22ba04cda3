#include <thread>

#include "tests/cpp/check.h"
#include "tests/cpp/kernels.h"
#include "tests/cpp/memory/allocator_fixture.h"

namespace npu {
namespace {

using namespace check;

TEST(OutOfMemory, SaysWhatWasAskedAndWhatThereIs) {
  auto memory = make_allocator();
  take(memory, 100 * kMiB, first_stream());
  OutOfMemory why;

  Block* block = memory.allocate(200 * kMiB, first_stream(), why);

  EXPECT_TRUE(block == nullptr);
  EXPECT_EQ(why.asked, 200 * kMiB);
  EXPECT_EQ(why.total, kTotal);
  EXPECT_EQ(why.free, 156 * kMiB);
  EXPECT_EQ(why.allocated, 100 * kMiB);
  EXPECT_EQ(why.reserved, 100 * kMiB);
  auto stats = memory.stats();
  EXPECT_EQ(stats["num_ooms"], 1);
  EXPECT_EQ(stats["num_alloc_retries"], 1);
  EXPECT_TRUE(why.message().starts_with(
      "NPU out of memory. Tried to allocate 200.00 MiB. NPU 0 has a total "
      "capacity of 256.00 MiB of which 156.00 MiB is free."));
  EXPECT_TRUE(why.message().find("PYTORCH_NPU_ALLOC_CONF") !=
              std::string::npos);
}

TEST(OutOfMemory, WritesSizesAsPeopleReadThem) {
  const auto says = [](uint64_t bytes) {
    OutOfMemory why{bytes, 1 << 20, 0, 1 << 20, 0, 0, 3};
    const std::string text = why.message();
    EXPECT_TRUE(text.find("at most") == std::string::npos);
    EXPECT_TRUE(text.find("NPU 3 has") != std::string::npos);
    const size_t from = text.find("allocate ") + 9;
    return text.substr(from, text.find(". ", from) - from);
  };
  EXPECT_EQ(says(1023), "1023 bytes");
  EXPECT_EQ(says(1024), "1.00 KiB");
  EXPECT_EQ(says(1536), "1.50 KiB");
  EXPECT_EQ(says(uint64_t{1} << 30), "1.00 GiB");
  EXPECT_EQ(says(uint64_t{3} << 40), "3.00 TiB");
  EXPECT_EQ(says(uint64_t{1} << 50), "1024.00 TiB");
}

TEST(OutOfMemory, SaysWhatIsHeldAndNotInUse) {
  auto memory = make_allocator();
  Block* used = take(memory, 100 * kMiB, first_stream());
  Block* part = take(memory, 5 * kMiB, first_stream());
  OutOfMemory why;
  EXPECT_TRUE(!memory.allocate(200 * kMiB, first_stream(), why));
  const std::string text = why.message();
  EXPECT_TRUE(text.find("105.00 MiB is allocated") != std::string::npos);
  EXPECT_TRUE(text.find("15.00 MiB is reserved") != std::string::npos);
  memory.free(used);
  memory.free(part);
}

TEST(OutOfMemory, RefusesAbsurdSizes) {
  auto memory = make_allocator();
  for (size_t bytes : {~size_t{0}, ~size_t{0} - 511, size_t{1} << 62})
    EXPECT_TRUE(take(memory, bytes, first_stream()) == nullptr);
  EXPECT_TRUE(take(memory, 512, first_stream()) != nullptr);
}

TEST(OutOfMemory, ReturnsTheCacheToTheDriverBeforeFailing) {
  auto memory = make_allocator();
  memory.free(take(memory, 200 * kMiB, first_stream()));

  Block* block = take(memory, 200 * kMiB, second_stream());

  EXPECT_TRUE(block != nullptr);
  EXPECT_EQ(memory.reserved(), 200 * kMiB);
  auto stats = memory.stats();
  EXPECT_EQ(stats["num_alloc_retries"], 1);
  EXPECT_EQ(stats["num_ooms"], 0);
  EXPECT_EQ(stats["num_device_alloc"], 2);
  EXPECT_EQ(stats["num_device_free"], 1);
}

TEST(OutOfMemory, WaitsForPendingBlocksBeforeFailing) {
  auto memory = make_allocator();
  Gate gate;
  Block* block = take(memory, 200 * kMiB, first_stream());
  memory.record_stream(block, second_stream());
  submit(second_stream(), kGate, {word(&gate)});
  gate.wait_until_entered();
  memory.free(block);
  std::jthread opening([&] { gate.open(); });

  EXPECT_TRUE(take(memory, 200 * kMiB, first_stream()) != nullptr);
}

TEST(OutOfMemory, TheFractionLimitsWhatIsReserved) {
  auto memory = make_allocator();
  memory.set_fraction(0.25);

  EXPECT_TRUE(take(memory, 65 * kMiB, first_stream()) == nullptr);
  Block* block = take(memory, 64 * kMiB, first_stream());
  EXPECT_TRUE(block != nullptr);
  OutOfMemory why;
  EXPECT_TRUE(memory.allocate(512, first_stream(), why) == nullptr);
  EXPECT_EQ(why.limit, 64 * kMiB);
  EXPECT_TRUE(why.message().find("at most 64.00 MiB") != std::string::npos);

  memory.set_fraction(1.0);
  EXPECT_EQ(memory.fraction(), 1.0);
  EXPECT_TRUE(take(memory, 65 * kMiB, first_stream()) != nullptr);
  EXPECT_EQ(memory.info().free, kTotal - 130 * kMiB);
  EXPECT_EQ(memory.info().total, kTotal);
}

}  // namespace
}  // namespace npu
